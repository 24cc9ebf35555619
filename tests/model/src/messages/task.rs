//! The work of a slot.

/// The work of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Task {
    /// The delivery or row that it works on.
    pub(super) work: Work,
    /// How far it is.
    pub(super) stage: Stage,
    /// Whether it holds its lock.
    pub(super) lock: Lock,
}

/// Whether a task holds its lock: of its own kind of work, shared; of what it is kept apart from, exclusively.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Lock {
    /// It has not come to that, or its outcome is written.
    Free,
    /// It holds it.
    Held,
    /// It has held it, until its database was away.
    Lost,
}

/// A delivery or a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Work {
    /// The number of the delivery.
    Delivery(u8),
    /// The message of the row, and how it is kept apart from other work.
    Row(u8, Isolation),
    /// No row yet: the work is to be quiet before one is fetched.
    Turn(Isolation),
}

/// The work that must not run concurrently with a row, in its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Isolation {
    /// Nothing: an ordinary row.
    Nothing,
    /// Other inbox rows.
    Rows,
    /// Anything.
    Everything,
}

/// How far a task is. Between two stages, everything else may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Stage {
    /// A delivery that has arrived. `stores`: it is stored before it runs. `pruned`: the pruning cutoff, where a defect
    /// reads it before the claim.
    Received { stores: bool, pruned: Option<u8> },
    /// A row that was fetched, with its start counted: it begins next.
    Fetched,
    /// Waits until the work ends that is to be quiet.
    Waiting,
    /// The transaction is open and holds the claim, and the handler runs.
    Running,
    /// The database is away, and the handler goes on without its transaction.
    Cut,
    /// The handler failed, and its transaction was rolled back. The failure is not written yet.
    Failed,
    /// The run of a row lost its connection. That is not written yet.
    Broke,
    /// The run was cut off, and the outcome of its transaction is known: the handler committed it. That is not written yet.
    CommittedEarly,
    /// With an order: the message has a row, and its delivery is settled when that is processed or dead.
    WaitsForRow,
    /// The database has taken the message over; the ack is next. Of a row, only where a defect removes it late.
    Settling,
}

impl Task {
    /// The work that it keeps out of its process: while it waits for its lock, it already lets nothing start.
    pub(super) fn isolates(self) -> Isolation {
        match (self.work, self.lock) {
            (Work::Turn(isolation), _) | (Work::Row(_, isolation), Lock::Held) => isolation,
            _ => Isolation::Nothing,
        }
    }
}
