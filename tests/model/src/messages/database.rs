//! The committed contents of the database: claims and inbox rows.

use super::slot::Slot;

/// The claim of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    /// The message that holds it: its fingerprint.
    pub(super) message: u8,
    /// When the message was processed. None: its inbox row exists.
    pub(super) date: Option<u8>,
    /// Whether a handler has committed it by itself, and nothing has changed it since.
    pub(super) early: bool,
}

impl Claim {
    /// The claim of a message that was processed at this time.
    pub(super) fn dated(message: u8, date: u8) -> Self {
        Self { message, date: Some(date), early: false }
    }

    /// The claim of a message that has a row.
    pub(super) fn undated(message: u8) -> Self {
        Self { message, date: None, early: false }
    }
}

/// An inbox row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Row {
    /// Why it is dead; None while it is scheduled.
    pub(super) dead: Option<Reason>,
    /// Who has it.
    pub(super) holder: Holder,
    /// Runs since the last result.
    pub(super) starts: u8,
    /// Runs since the last result that lost their connection.
    pub(super) breaks: u8,
    /// Failed runs.
    pub(super) attempts: u8,
    /// Whether an operator has taken its key away: it owns no claim, and goes through decode and key again.
    pub(super) keyless: bool,
}

impl Row {
    /// A row that has never been fetched.
    pub(super) fn new(attempts: u8, dead: Option<Reason>) -> Self {
        Self { dead, holder: Holder::Nobody, starts: 0, breaks: 0, attempts, keyless: false }
    }

    /// Whether the claim of its key is that of its message.
    pub(super) fn owns_claim(self) -> bool {
        self.dead != Some(Reason::Conflict) && !self.keyless
    }
}

/// The token and the lease of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    /// It has no token.
    Nobody,
    /// It has the token of this slot, and the lease goes on.
    Leased(Slot),
    /// It has the token of this slot, whose lease is over: a worker that was paused.
    Expired(Slot),
    /// It has a token of a process that is gone. The lease ends by itself, so that time is not a step.
    Gone,
}

/// Why a row is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Reason {
    /// Its attempts ended, or it failed for good.
    Failed,
    /// Processes ended while it ran.
    Crashed,
    /// It lost its connection too often.
    Broke,
    /// Another message holds the claim of its key. Such a row owns no claim.
    Conflict,
    /// It may have been processed under a claim that was pruned.
    TooOld,
    /// Its handler ran COMMIT: half of its effects may stand.
    Committed,
}
