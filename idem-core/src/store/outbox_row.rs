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

/// The error of a local message whose key another message has claimed.
pub const LOCAL_CONFLICT: &str = "another message was already claimed under the key of this local message: use the id of the \
                                  event as the key, not of its entity; `Inbox::replay_as` runs it under another key";

/// A message that has still to be published.
// Exhaustive: a store that did not read a new part of it must not compile.
#[derive(Debug, Clone, PartialEq)]
pub struct OutboxRow {
    /// The order in which messages were staged, within a lane.
    pub id: i64,
    /// The lane.
    pub lane: u8,
    /// The message. Its attempt is the number of failures that were charged to it, and one.
    pub message: StagedMessage,
    /// How long ago it was staged.
    pub age: Duration,
    /// How long to wait before it may be published, after a failure.
    pub due: Duration,
}

/// The part of a lane that a relay reads.
// Exhaustive: as above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneLook {
    /// The lane.
    pub lane: u8,
    /// Rows with a smaller id are left out.
    pub floor: i64,
    /// The number of rows to read at most.
    pub limit: u32,
}

/// The leases of a relay.
// Exhaustive: as above.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaneLeases {
    /// The lanes that it holds.
    pub held: Vec<u8>,
    /// How many relays of the outbox are alive, this one included.
    pub relays: u32,
}

/// The row of a message. An id alone does not identify it: a server that takes over from a failed one may give an id
/// again.
// Exhaustive: as above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowRef {
    /// Its lane.
    pub lane: u8,
    /// Its id.
    pub id: i64,
    /// The id of its message.
    pub message_id: Uuid,
}

/// A message that the broker has refused.
// Exhaustive: a store that did not write a new part of it must not compile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishFailure {
    /// Its row.
    pub row: RowRef,
    /// How often the broker has refused it, this time included. The row never gets fewer attempts than it has.
    pub attempts: u32,
    /// When it is published again. `None`: it is given up, and becomes a dead letter.
    pub next: Option<Duration>,
    /// The error.
    pub error: String,
}

/// A dead letter of an outbox: a message that its relay has given up.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
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

/// The fill level of an outbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutboxStats {
    /// How many messages have still to be published; counted up to the limit that the caller has given.
    pub waiting: u64,
    /// How long ago the oldest of them was staged.
    pub oldest: Option<Duration>,
    /// How many dead letters there are; counted up to the same limit.
    pub dead: u64,
    /// How many relays of it are alive.
    pub relays: u32,
}

impl OutboxStats {
    /// Creates the stats of a store.
    pub fn new(waiting: u64, oldest: Option<Duration>, dead: u64, relays: u32) -> Self {
        Self { waiting, oldest, dead, relays }
    }
}

impl DeadOutgoing {
    /// Creates a dead letter, as a store reads it.
    pub fn new(id: i64, message: StagedMessage, attempts: u32, error: String, died_at: SystemTime) -> Self {
        Self { id, message, attempts, error, died_at }
    }
}

/// The read of a relay.
// Exhaustive: a store that ignored a new part of it could lose a message, so it must not compile.
#[derive(Debug, Clone, Copy)]
pub struct OutboxRead<'a> {
    /// The lanes.
    pub lanes: &'a [LaneLook],
    /// Leaves out the messages of these keys, which wait for an earlier one.
    pub blocked: &'a [Key],
    /// Leaves out the messages with these ids, which the relay has already.
    pub known: &'a [i64],
    /// Reads at most this many bytes of payloads and headers of each lane, but at least one message.
    pub bytes: u64,
    /// Whether to return [`OutboxFound::mark`].
    pub marks: bool,
}

/// The result of a relay's read.
// Exhaustive: as above.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OutboxFound {
    /// The messages, in the order of lane and id.
    pub rows: Vec<OutboxRow>,
    /// The lanes that have more rows up to the limit, which [`OutboxRead::bytes`] did not permit.
    pub cut: Vec<u8>,
    /// The transactions that were open, as this read saw the database: all of them with a number below that of a mark that
    /// an earlier read has returned. Empty if ids are in the order of commits.
    pub open: Vec<i64>,
    /// A number above that of each transaction that had written before; any number if ids are in the order of commits.
    /// `None` if it was not asked for.
    pub mark: Option<i64>,
    /// If ids are in the order of commits: the highest id of the lanes, those of messages included that the read has left
    /// out. All that is committed later has a higher one. Otherwise, or if it is not known, 0.
    pub highest: i64,
}
