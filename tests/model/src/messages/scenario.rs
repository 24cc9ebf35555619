//! A small world to search: which messages there are, what their handlers do, and which failures may come.

use super::defect::Defect;
use super::facts::Left;
use super::slot::WORKERS;
use super::state::{DELIVERIES, MESSAGES};

/// How often a message may fail.
pub(super) const MAX_ATTEMPTS: u8 = 2;
/// The number of starts without a result that makes a message a dead letter, as in the code.
pub(super) const MAX_STARTS: u8 = 4;
/// The number of breaks that makes a message a dead letter. In the code it is 10; the rules are the same.
pub(super) const MAX_LOST_CONNECTIONS: u8 = 3;

/// A world to search.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    /// Its subject.
    pub(crate) name: &'static str,
    /// The messages.
    pub(super) messages: &'static [Message],
    /// The failures that may come.
    pub(super) left: Left,
    /// For a log, how far a delivery in flight may be beyond the finished ones, and how many deliveries a new owner marks,
    /// besides one for each that it need not store. None: the broker marks what it delivers again.
    pub(super) window: Option<u8>,
    /// Whether a log is handled in order.
    pub(super) ordered: bool,
    /// How many workers there are, each a process of its own.
    pub(super) workers: usize,
    /// The rule that is broken.
    pub(crate) defect: Option<Defect>,
}

/// A message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    /// The number of its key. Two messages with one key are a conflict.
    pub(super) key: u8,
    /// The behaviour of its handler.
    pub(super) handler: Handler,
    /// How often it is delivered. Not at all: it has a row at first.
    pub(super) copies: u8,
    /// When it is published.
    pub(super) published: u8,
    /// The message that it is under the key which its handler gives it after a deployment.
    pub(super) becomes: Option<u8>,
    /// The database of its worker. Each process has a worker of each database.
    pub(super) database: u8,
}

/// The behaviour of a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handler {
    /// It succeeds.
    Succeeds,
    /// It fails once, then it succeeds.
    FailsOnce,
    /// It always fails.
    Fails,
    /// It ends its process.
    Kills,
    /// It breaks its connection.
    Breaks,
    /// It runs ROLLBACK once, and returns as if it had succeeded.
    RunsRollback,
    /// It runs COMMIT, and loses its connection before it returns.
    RunsCommit,
    /// It does in each run what it likes, except that it does not end its process. A trace says what it did.
    Anything,
}

impl Message {
    /// A message that is delivered once, under the key of this number.
    pub(super) const fn new(key: u8, handler: Handler) -> Self {
        Self { key, handler, copies: 1, published: 0, becomes: None, database: 0 }
    }

    pub(super) const fn copies(self, copies: u8) -> Self {
        Self { copies, ..self }
    }

    /// A message that was stored before, and is not delivered again.
    pub(super) const fn stored(key: u8, handler: Handler) -> Self {
        Self { copies: 0, ..Self::new(key, handler) }
    }

    pub(super) const fn becomes(self, message: u8) -> Self {
        Self { becomes: Some(message), ..self }
    }

    pub(super) const fn database(self, database: u8) -> Self {
        Self { database, ..self }
    }

    pub(super) const fn published(self, published: u8) -> Self {
        Self { published, ..self }
    }
}

impl Scenario {
    /// A world without failures, with a broker that marks what it delivers again.
    pub(super) const fn new(name: &'static str, messages: &'static [Message], left: Left) -> Self {
        assert!(messages.len() <= MESSAGES);
        Self { name, messages, left, window: None, ordered: false, workers: WORKERS, defect: None }
    }

    /// The same world with a log.
    pub(super) const fn log(self, window: u8) -> Self {
        Self { window: Some(window), ..self }
    }

    /// The same world with a log that is handled in order.
    pub(super) const fn ordered(self, window: u8) -> Self {
        Self { window: Some(window), ordered: true, ..self }
    }

    /// The same world with one worker.
    pub(super) const fn alone(self) -> Self {
        Self { workers: 1, ..self }
    }

    /// The same world with a broken rule.
    pub(crate) fn broken(self, defect: Defect) -> Self {
        Self { defect: Some(defect), ..self }
    }

    /// Whether this rule is broken.
    pub(super) fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// How many deliveries there are.
    pub(super) fn deliveries(&self) -> usize {
        self.messages.iter().map(|message| usize::from(message.copies)).sum::<usize>().min(DELIVERIES)
    }

    /// The message of a delivery. In the order of the broker, the first copy of each message comes first.
    pub(super) fn message_of(&self, delivery: u8) -> u8 {
        let rounds = (0..4).flat_map(|copy| (0..).zip(self.messages).filter(move |(_, message)| message.copies > copy));
        rounds.map(|(message, _)| message).nth(usize::from(delivery)).unwrap_or_default()
    }

    pub(super) fn message(&self, message: u8) -> Message {
        self.messages[usize::from(message)]
    }

    pub(super) fn key(&self, message: u8) -> usize {
        usize::from(self.message(message).key)
    }
}
