//! Rows of the outbox, as relays and operators read them.

use std::time::{Duration, SystemTime};

use uuid::Uuid;

use crate::outbox::StagedMessage;
use crate::{Delivery, Key};

use super::Identity;

/// An outbox: its row in the table `outboxes`.
// Exhaustive: it is the row, and stores write and read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OutboxId {
    /// Its name, interned as a small integer.
    pub number: i32,
    /// A random value that is made with the row and never changes. It goes into the ids of messages, so that those of
    /// two schemas differ although consumer, handler and key are the same in both.
    pub namespace: Uuid,
}

/// A message that a handler hands to another one of the same consumer.
// Exhaustive: a store that did not write a new part of it must not compile.
#[derive(Debug, Clone)]
pub struct LocalMessage {
    /// Its identity. It has a key.
    pub identity: Identity,
    /// Its payload and headers.
    pub delivery: Delivery,
    /// The key of the external call of its handler, if that makes one.
    pub provider_key: Option<Uuid>,
}

/// The error of a local message whose key another message has claimed. It is a dead letter of its handler, as a delivery would be,
/// and no failure of the sender, whose own effects are right.
pub const LOCAL_CONFLICT: &str = "another message was already claimed under the key of this local message: use the id of the \
                                  event as the key, not of its entity; `idem dead replay ID --as KEY` runs it under another key";

/// A message that has still to be published.
// Exhaustive: a store that did not read a new part of it must not compile.
#[derive(Debug, Clone, PartialEq)]
pub struct OutboxRow {
    /// The order in which messages were staged.
    pub id: i64,
    /// The message. Its attempt is the number of failures that counted, and one.
    pub message: StagedMessage,
    /// How long ago it was staged.
    pub age: Duration,
    /// How long to wait before it may be published, after a failure.
    pub due: Duration,
}

/// The request of a relay about the lease of its outbox.
// Exhaustive: a store that ignored a new kind would be wrong, so it must not compile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseRequest {
    /// Takes it for so long from now on if it is free, or renews it if it is held under the token, even if it has ended. It is
    /// free if nobody has it, if it has ended, or if it ends later than after the length with which it was taken: then the
    /// clock was set back since.
    Hold(Duration),
    /// Releases it, if it is held under the token.
    Release,
    /// Takes nothing, and records that a relay of the outbox runs.
    Show,
}

/// The answer to a [`LeaseRequest`].
// Exhaustive: as above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// It is held under the token; for the other requests: it is done.
    Held,
    /// Another relay has it.
    Other,
    /// The outbox has no row: the database is another one, or was restored. It has to be registered again.
    Unknown,
}

/// The row of a message. An id alone does not identify it: a server that takes over from a failed one may give an id
/// again.
// Exhaustive: as above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowRef {
    /// Its id.
    pub id: i64,
    /// The id of its message.
    pub message_id: Uuid,
}

/// A message that the broker has rejected.
// Exhaustive: a store that did not write a new part of it must not compile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishFailure {
    /// Its row.
    pub row: RowRef,
    /// How often the broker has rejected it, this time included. The row never gets fewer attempts than it has.
    pub attempts: u32,
    /// When it is published again. `None`: it is given up, and becomes a dead letter.
    pub next: Option<Duration>,
    /// The error.
    pub error: String,
}

/// A dead letter of an outbox: a message that its relay has given up.
// Exhaustive: a store makes it.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadOutgoing {
    /// Its id, for [`StoreOutbox::replay`](crate::StoreOutbox::replay) and
    /// [`discard`](crate::StoreOutbox::discard).
    pub id: i64,
    /// The message.
    pub message: StagedMessage,
    /// How often it was published in vain.
    pub attempts: u32,
    /// The error of the last attempt.
    pub error: String,
    /// When it was given up.
    pub died_at: SystemTime,
}

/// The fill level of an outbox. A store outside this crate starts with `OutboxStats::default()`, which is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutboxStats {
    /// How many messages have still to be published; counted up to the limit that the caller has given.
    pub waiting: u64,
    /// How long ago the oldest of them was staged.
    pub oldest: Option<Duration>,
    /// How many dead letters there are; counted up to the same limit.
    pub dead: u64,
    /// How long ago a relay of it has last shown that it runs: the active one, or one that waits for its broker. `None`: never.
    pub relay_seen: Option<Duration>,
}

/// An outbox whose messages no relay has looked at for a while.
// Exhaustive: a store makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadOutbox {
    /// Its name.
    pub name: String,
    /// How many messages wait there; counted up to the limit that the caller has given.
    pub waiting: u64,
    /// How long ago the oldest of them was staged.
    pub oldest: Duration,
}

/// The read of a relay.
// Exhaustive: a store that ignored a new part of it could lose a message, so it must not compile.
#[derive(Debug, Clone)]
pub struct OutboxRead {
    /// The first id that it covers.
    pub from: i64,
    /// The last id that it covers.
    pub to: i64,
    /// The messages among these.
    pub filter: OutboxFilter,
    /// Leaves out the messages with these ids, which the relay has already.
    pub known: Vec<i64>,
    /// The number of messages to read at most.
    pub limit: u32,
    /// Reads at most this many bytes of payloads and headers, but at least one message.
    pub bytes: u64,
    /// Whether to draw a [mark](OutboxFound::mark) after the read.
    pub marks: bool,
}

/// The messages that a read is for.
// Exhaustive: as above.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutboxFilter {
    /// All but those of these keys, and of those without a key all but those to these destinations.
    Except {
        /// Keys that wait for an earlier message.
        keys: Vec<Key>,
        /// Destinations that wait until one of them answers.
        destinations: Vec<String>,
    },
    /// Those of these keys.
    Keys(Vec<Key>),
    /// Those to this destination, without a key.
    Destination(String),
    /// Those with these ids.
    Ids(Vec<i64>),
}

impl OutboxRead {
    /// Reads all messages that wait, as far as memory permits, for an operator or a test.
    pub const ALL: Self = Self {
        from: 0,
        to: i64::MAX,
        filter: OutboxFilter::Except { keys: Vec::new(), destinations: Vec::new() },
        known: Vec::new(),
        limit: u32::MAX >> 8,
        bytes: u64::MAX,
        marks: false,
    };
}

/// The result of a relay's read.
// Exhaustive: as above.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OutboxFound {
    /// The messages, in the order of their ids.
    pub rows: Vec<OutboxRow>,
    /// Whether there may be more of them behind the last one, which the limits did not permit.
    pub is_cut: bool,
    /// The transactions, as the read saw the database. `None`: ids are in the order of commits, so that no message appears
    /// in front of one that was read.
    pub snapshot: Option<OutboxSnapshot>,
    /// The mark that was asked for. If ids are in the order of commits, its number means nothing, and its highest id is that of a
    /// message that waits: all that is committed later has a higher one.
    pub mark: Option<OutboxMark>,
}

/// The transactions as a read saw the database.
// Exhaustive: as above.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutboxSnapshot {
    /// The numbers of the transactions that were open, below [`end`](Self::end). Staging draws the number of its transaction
    /// before the ids of its messages.
    pub open: Vec<i64>,
    /// All transactions with a lower number that are not open had ended, so the read has seen their messages.
    pub end: i64,
    /// A number of the table and of its database, which changes if another one takes its place.
    pub table: i64,
}

/// A mark after a read: a separate statement has drawn a number as a transaction does.
// Exhaustive: as above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboxMark {
    /// The number.
    pub number: i64,
    /// The highest id that any message had drawn before; 0: it is not known.
    pub highest: i64,
}
