//! The worlds that are searched: which messages there are, and which failures may come.

use super::defect::Defect;
use super::state::Left;

/// How often a message may be refused.
const MAX_ATTEMPTS: u8 = 2;

/// A world to search.
#[derive(Debug, Clone)]
pub(crate) struct World {
    /// Its subject.
    pub(crate) name: &'static str,
    /// The messages, in the order in which they are staged.
    pub(super) messages: &'static [Message],
    /// How often a message may be refused until it is given up. `None`: as often as a trace says.
    pub(super) attempts: Option<u8>,
    /// The failures that may come.
    pub(super) left: Left,
    /// The rule that is broken.
    pub(super) defect: Option<Defect>,
}

/// A message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    /// Its key. Messages of one key leave in the order in which they were staged.
    pub(super) key: u8,
    /// The broker's answers to it.
    pub(super) broker: Broker,
}

/// The broker's answers to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broker {
    /// It takes the message.
    Fetches,
    /// It refuses the message once.
    RefusesOnce,
    /// It always refuses the message: it cannot be routed.
    Refuses,
    /// It may do either: a trace says what it did.
    Anything,
}

impl World {
    /// Whether this rule is broken.
    pub(super) fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// The earlier messages of the same key.
    pub(super) fn before(&self, message: usize) -> impl Iterator<Item = usize> {
        (0..message).filter(move |before| self.messages[*before].key == self.messages[message].key)
    }
}

const NONE: Left = Left { kills: 0, pauses: 0, losses: 0, rollbacks: 0, returns: 0 };

const fn message(key: u8, broker: Broker) -> Message {
    Message { key, broker }
}

const ONE: &[Message] = &[message(0, Broker::Fetches)];
const UNROUTABLE: &[Message] = &[message(0, Broker::Refuses)];
const PAIR: &[Message] = &[message(0, Broker::Fetches), message(0, Broker::Fetches)];
const KEYS: &[Message] = &[message(0, Broker::Fetches), message(1, Broker::Fetches), message(0, Broker::Fetches)];
const REFUSED_ONCE: &[Message] =
    &[message(0, Broker::RefusesOnce), message(1, Broker::Fetches), message(0, Broker::Fetches)];
const TRACED: &[Message] = &[message(0, Broker::Anything), message(0, Broker::Anything)];
const REFUSED: &[Message] = &[message(0, Broker::Refuses), message(1, Broker::Fetches), message(0, Broker::Fetches)];

/// The worlds, each with the failures that make it small enough for CI, and more of them otherwise.
pub(crate) fn worlds(small: bool) -> Vec<World> {
    let more = u8::from(!small);
    let attempts = Some(MAX_ATTEMPTS);
    let world = |name, messages, left| World { name, messages, attempts, left, defect: None };
    vec![
        world("two keys", KEYS, Left { kills: 1, pauses: 1, losses: more, rollbacks: 1, ..NONE }),
        world("a broker that is away", KEYS, Left { kills: more, pauses: more, losses: 2, returns: 1, ..NONE }),
        world("a message that is refused once", REFUSED_ONCE, Left { kills: 1, pauses: 1, losses: more, ..NONE }),
        world("a message that is refused", REFUSED, Left { kills: 1, pauses: 1, losses: more, ..NONE }),
    ]
}

/// The world in which this broken rule must fail.
pub(crate) fn of(defect: Defect) -> World {
    let (messages, left) = match defect {
        Defect::DeleteBeforeConfirm => (ONE, Left { losses: 1, ..NONE }),
        Defect::ReturnedIsConfirmed => (UNROUTABLE, NONE),
        Defect::DeleteWithoutToken => (ONE, Left { pauses: 1, ..NONE }),
        Defect::Cursor => (KEYS, NONE),
        Defect::StagedInOwnTransaction => (ONE, Left { rollbacks: 1, ..NONE }),
        Defect::StagedBeforeTheLock => (PAIR, NONE),
        Defect::LaterOfKeyOvertakes => (PAIR, Left { losses: 1, ..NONE }),
        Defect::RefusedKeyNotBlocked => (REFUSED_ONCE, NONE),
        Defect::AwayCostsAttempt => (ONE, Left { losses: 2, ..NONE }),
    };
    World { name: "", messages, attempts: Some(MAX_ATTEMPTS), left, defect: None }
}

impl World {
    /// The world of a trace, with so many messages of one key: one or two.
    pub(super) fn traced(messages: usize, left: Left) -> Self {
        let messages = &TRACED[..messages.clamp(1, TRACED.len())];
        Self { name: "a trace", messages, attempts: None, left, defect: None }
    }

    /// The same world with a broken rule.
    pub(crate) fn broken(self, defect: Defect) -> Self {
        Self { defect: Some(defect), ..self }
    }
}
