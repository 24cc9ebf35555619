//! The state of the world: transactions that stage a message each, and the relay that reads them.

/// How many transactions there are.
pub(super) const WRITERS: usize = 3;

/// Everything that can change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(super) writers: [Writer; WRITERS],
    /// The numbers of transactions and the ids of messages that are given next.
    pub(super) next_number: u8,
    pub(super) next_id: u8,
    /// The highest number of a transaction that has ended. PostgreSQL's snapshots list no open transaction above it.
    pub(super) ended: u8,
    pub(super) low_water: u8,
    /// The last mark: the highest id that was drawn by then, and its number.
    pub(super) mark: Option<(u8, u8)>,
    /// The highest low-water mark that was reached, and the number of its mark.
    pub(super) reached: (u8, u8),
    /// The transactions that are remembered, with the low-water mark from before them.
    pub(super) remembered: [Option<u8>; WRITERS],
    /// The read that runs.
    pub(super) reading: Option<Snapshot>,
    /// How many transactions may still be rolled back, and how often the server may still fail over.
    pub(super) rollbacks: u8,
    pub(super) failovers: u8,
}

/// A transaction that stages one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Writer {
    pub(super) phase: Phase,
    /// Its number, once it has one.
    pub(super) number: u8,
    /// The id of its message, once it is staged.
    pub(super) id: u8,
}

/// How far a transaction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) enum Phase {
    #[default]
    Idle,
    /// It has its number, and no message. If a defect makes it draw the id first, it has only that.
    Begun,
    /// Its message is written.
    Staged,
    Committed,
    /// It was rolled back, or lost in a failover.
    Gone,
    /// Its message is published.
    Published,
}

/// The snapshot of a read, and where it has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Snapshot {
    pub(super) from: u8,
    /// The transactions that were committed, and those that it lists as open.
    pub(super) committed: [bool; WRITERS],
    pub(super) open: [bool; WRITERS],
    /// Its upper bound. Each transaction below it that is not listed has ended.
    pub(super) end: u8,
}

impl State {
    /// The number of a transaction that is open, if it has one.
    pub(super) fn open(&self, writer: usize) -> Option<u8> {
        let Writer { phase, number, .. } = self.writers[writer];
        (matches!(phase, Phase::Begun | Phase::Staged) && number > 0).then_some(number)
    }

    /// Draws the next number of a transaction.
    pub(super) fn number(&mut self) -> u8 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// Draws the next id of a message.
    pub(super) fn id(&mut self) -> u8 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// Ends a transaction.
    pub(super) fn end(&mut self, writer: usize, phase: Phase) {
        self.ended = self.ended.max(self.writers[writer].number);
        self.writers[writer].phase = phase;
    }
}
