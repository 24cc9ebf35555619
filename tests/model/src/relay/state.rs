//! The state of the world: the outbox, its lease, two relays and a broker.

/// How many messages a world has at most.
pub(super) const MESSAGES: usize = 3;
/// How many relays there are.
pub(super) const RELAYS: usize = 2;

/// Everything that can change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The messages of the outbox, in the order of their ids.
    pub(super) rows: [Row; MESSAGES],
    /// The lease of the outbox.
    pub(super) lease: Lease,
    /// The relays.
    pub(super) relays: [Relay; RELAYS],
    /// The messages of each relay that are on their way to the broker. They outlive the relay.
    pub(super) flying: [[bool; MESSAGES]; RELAYS],
    /// The messages that the broker has, in the order in which each arrived first.
    pub(super) arrived: [Option<u8>; MESSAGES],
    /// Which messages the broker has refused before.
    pub(super) refused: [bool; MESSAGES],
    /// Whether a relay that did not hold the lease has deleted a row.
    pub(super) unfenced: bool,
    /// The failures that may still come.
    pub(super) left: Left,
}

/// A message in the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Row {
    /// Its handler has not staged it yet.
    Unwritten,
    /// Written by a transaction that is open.
    Open,
    /// Committed, before its handler's transaction. Only a defect does that.
    Early,
    /// Committed, with this many failed attempts.
    Waiting { attempts: u8, due: bool },
    /// Confirmed and deleted.
    Deleted,
    /// Given up, and moved to the dead letters.
    Dead,
    /// Its transaction was rolled back.
    RolledBack,
}

/// The lease of the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Lease {
    /// Nobody has it, or its relay is gone. A lease ends by itself, so that time is not a step.
    Free,
    /// This relay has it.
    Leased(u8),
    /// This relay had it, was paused, and its lease is over.
    Expired(u8),
}

/// The memory of a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Relay {
    /// Whether it believes to hold the lease.
    pub(super) holds: bool,
    /// Its knowledge of each message.
    pub(super) known: [Known; MESSAGES],
    /// The highest message that it has read, if a defect makes it read from there.
    pub(super) cursor: u8,
}

/// A relay's knowledge of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) enum Known {
    /// Nothing.
    #[default]
    Unread,
    /// It waits for its next attempt, and its key with it.
    Waits,
    /// It is to be published.
    Read,
    /// It was published, and there is no answer yet.
    Sent,
    /// The broker has confirmed it.
    Confirmed,
    /// The broker has refused it, or, by a defect, could not be reached.
    Refused,
}

/// How many failures of each kind may still come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Left {
    /// The process of a relay ends.
    pub(super) kills: u8,
    /// A lease ends although its relay lives.
    pub(super) pauses: u8,
    /// A publish, or its answer, is lost.
    pub(super) losses: u8,
    /// A handler's transaction is rolled back.
    pub(super) rollbacks: u8,
    /// A relay releases its lease, because it ends.
    pub(super) returns: u8,
}

impl State {
    /// Whether the broker has the message.
    pub(super) fn has_arrived(&self, message: usize) -> bool {
        self.arrived.iter().flatten().any(|arrived| usize::from(*arrived) == message)
    }

    /// Whether this relay holds the lease, by its token. A lease that is over keeps its token until another relay has
    /// taken the lease.
    pub(super) fn has_token(&self, relay: usize) -> bool {
        matches!(self.lease, Lease::Leased(holder) | Lease::Expired(holder) if usize::from(holder) == relay)
    }
}

/// A state of these worlds, and the steps that it permits.
pub(super) type Steps<'a> = crate::step::Steps<'a, super::world::World, State>;
