//! The history of a message, and the failures that may still come.

/// The history of a message. No rule reads this, except that a handler may fail only once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Facts {
    /// How often its effect was committed.
    pub(super) effects: u8,
    /// Whether its effect or a row of it was ever committed.
    pub(super) kept: bool,
    /// How many of its effects are forgotten with its claim: each generation of claims may have one.
    pub(super) forgotten: u8,
    /// Whether it has another key since: under that one it is another message of the world.
    pub(super) moved: bool,
    /// Whether an operator discarded it.
    pub(super) discarded: bool,
    /// How many processes its handler has ended.
    pub(super) deaths: u8,
    /// How many connections its handler has broken.
    pub(super) breaks: u8,
    /// How often its handler failed.
    pub(super) failures: u8,
    /// Whether its row was charged with the crash of a message from which it was to be isolated.
    pub(super) charged: bool,
    /// Runs of its row that have begun, and have neither ended with a result nor been refunded.
    pub(super) open: u8,
}

/// How many failures of each kind may still come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Left {
    /// A process is killed from outside.
    pub(super) kills: u8,
    /// A database is away for a while.
    pub(super) outages: u8,
    /// A lease ends although its worker lives.
    pub(super) pauses: u8,
    /// A statement has no answer: it may or may not have been done.
    pub(super) losses: u8,
    /// The broker takes a delivery back, or moves its partition.
    pub(super) returns: u8,
    /// Prune deletes a claim.
    pub(super) prunes: u8,
    /// An operator replays or discards.
    pub(super) orders: u8,
    /// An operator forgets a claim.
    pub(super) forgets: u8,
    /// The clock advances.
    pub(super) ticks: u8,
    /// A transaction is rolled back without a recorded attempt: it lost a race, or another message of its batch failed.
    pub(super) again: u8,
}
