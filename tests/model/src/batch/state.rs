//! The state of the world: deliveries at one worker, its open batch, and what is committed.

/// How many messages a world has at most.
pub(super) const MESSAGES: usize = 3;
/// How many deliveries of them: the last one may be a copy of the first message.
pub(super) const DELIVERIES: usize = MESSAGES + 1;

/// Everything that can change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// Where each delivery is.
    pub(super) deliveries: [Place; DELIVERIES],
    /// The messages.
    pub(super) messages: [Message; MESSAGES],
    /// The open transaction of a batch.
    pub(super) batch: Option<Batch>,
    /// How often the process may still be killed.
    pub(super) kills: u8,
    /// How often a commit may still have no answer.
    pub(super) losses: u8,
}

/// Where a delivery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// At the broker, or at the worker, but to be stored: whether a process or a connection may have ended on it.
    Queued { again: bool },
    /// At the worker. Whether it has left its batch, and runs as a single delivery.
    Held { single: bool },
    /// Its result is committed, and the ack is next.
    Done,
    /// The broker has its ack.
    Settled,
}

/// The committed state of a message, and its history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Message {
    /// Its claim.
    pub(super) claim: Claim,
    /// Its row: dead or not, its starts and attempts.
    pub(super) row: Option<Row>,
    /// How often its effect was committed.
    pub(super) effects: u8,
    /// Whether what its natural handler stages was committed.
    pub(super) staged: bool,
    /// Whether its effect or a row of it was ever committed.
    pub(super) kept: bool,
    /// How often its handler failed.
    pub(super) failures: u8,
}

/// A claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) enum Claim {
    /// There is none.
    #[default]
    None,
    /// Its row exists.
    Undated,
    /// It is processed.
    Dated,
}

/// An inbox row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Row {
    pub(super) dead: bool,
    pub(super) starts: u8,
    pub(super) attempts: u8,
}

/// The open transaction of a batch. It holds the claims of its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Batch {
    /// Its messages.
    pub(super) members: [bool; MESSAGES],
    /// The message whose handler runs next.
    pub(super) place: usize,
    /// The messages whose effects it contains.
    pub(super) effects: [bool; MESSAGES],
    /// The message whose handler has ended the transaction.
    pub(super) ended_by: Option<usize>,
}

impl State {
    /// Commits the effect of a message, and dates its claim.
    pub(super) fn process(&mut self, message: usize) {
        let known = &mut self.messages[message];
        *known = Message { claim: Claim::Dated, row: None, effects: known.effects + 1, kept: true, ..*known };
    }

    /// Commits a run of a natural handler: nothing, if it finds its effect. What it stages is written with the commit of idem
    /// only, and a claim is dated with a row only.
    pub(super) fn process_naturally(&mut self, message: usize, stages: bool, of_row: bool) {
        let known = &mut self.messages[message];
        let staged = known.staged || known.effects == 0 && stages;
        *known = Message { effects: 1, kept: true, staged, ..*known };
        if of_row {
            *known = Message { claim: Claim::Dated, row: None, ..*known };
        }
    }

    /// Commits a row of a message, with an undated claim.
    pub(super) fn store(&mut self, message: usize, row: Row) {
        let known = &mut self.messages[message];
        *known = Message { claim: Claim::Undated, row: Some(row), kept: true, ..*known };
    }
}

/// A state of these worlds, and the steps that it permits.
pub(super) type Steps<'a> = crate::step::Steps<'a, super::world::World, State>;
