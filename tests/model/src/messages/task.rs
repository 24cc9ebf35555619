//! The work of a slot.

/// The work of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Task {
    /// The delivery or row that it works on.
    pub(super) work: Work,
    /// How far it is.
    pub(super) stage: Stage,
}

/// A delivery or a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Work {
    /// The number of the delivery.
    Delivery(u8),
    /// The message of the row, and how it is kept apart from other work.
    Row(u8, Isolation),
}

/// The work that must not run beside a row, in its process.
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
    /// A row that was taken, or whose start was counted: it begins next.
    Taken,
    /// A suspect that waits until its process is quiet, and had these starts when it was reserved.
    Reserved { known: u8 },
    /// The same, after the statement that counts its start has had no answer. Its process stays quiet for it, except
    /// where a defect ends that.
    Counting { known: u8, isolated: bool },
    /// The transaction is open and holds the claim, and the handler runs.
    Running,
    /// The handler failed, and its transaction was rolled back. The failure is not written yet.
    Failed,
    /// The run of a row lost its connection. That is not written yet.
    Broke,
    /// The run was cut off, and the fate of its transaction is known: the handler committed it. That is not written yet.
    CommittedEarly,
    /// With an order: the message has a row, and its delivery is settled when that is processed or dead.
    WaitsForRow,
    /// The database has taken the message over; the ack is next. Of a row, only where a defect removes it late.
    Settling,
}

impl Task {
    /// The work that it keeps out of its process. A suspect that waits for a quiet process keeps out nothing yet.
    pub(super) fn isolates(self) -> Isolation {
        match (self.work, self.stage) {
            (_, Stage::Reserved { .. } | Stage::Counting { isolated: false, .. }) | (Work::Delivery(_), _) => {
                Isolation::Nothing
            }
            (Work::Row(_, isolation), _) => isolation,
        }
    }
}
