//! The steps that a line of a trace can name.

/// A step of a real worker, an operator or a broker, about one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Seen {
    /// A delivery reached a worker. `stores`: it must be stored before it runs.
    Received,
    /// A transaction has inserted the claim; its handler runs next.
    Claimed,
    /// A transaction has deleted the row by its token and dated the claim; its handler runs next.
    Started,
    /// The transaction with the effect was committed. `of`: with its claim, or with its row.
    Committed,
    /// The transaction was rolled back.
    RolledBack,
    /// The handler committed the transaction by itself.
    EndedByHandler,
    /// The message was stored as a row, not run.
    Stored,
    /// A failed direct run was recorded as a row.
    Failed,
    /// Another message holds the claim: the row of a conflict was written.
    Conflict,
    /// The dead row of a message whose handler ran COMMIT was written.
    DeadCommitted,
    /// The broker got the ack.
    Acked,
    /// The worker gave a delivery up, or the broker has taken it back.
    Gone,
    /// The row was taken, and its start counted.
    Taken,
    /// The row, a suspect, was reserved.
    Reserved,
    /// The start of a reserved row was counted.
    Counted,
    /// The result of a run was recorded. `result`: failed or broke.
    Recorded,
    /// A taken row was given back, not run.
    GivenBack,
    /// A reserved row was released, not run.
    Released,
    /// The start of a row whose lease was lost was given back.
    Refunded,
    /// The row has had all its starts, and is dead.
    Crashed,
    /// An operator replayed the dead row.
    Replayed,
    /// An operator discarded the dead row.
    Discarded,
    /// The process ended.
    Died,
    /// The state of the database at the end. `row`: none, scheduled or dead. `claim`: none, undated or dated.
    Left,
}

/// The names of the steps in a trace.
const NAMES: &[(&str, Seen)] = &[
    ("received", Seen::Received),
    ("claimed", Seen::Claimed),
    ("started", Seen::Started),
    ("committed", Seen::Committed),
    ("rolled-back", Seen::RolledBack),
    ("ended-by-handler", Seen::EndedByHandler),
    ("stored", Seen::Stored),
    ("failed", Seen::Failed),
    ("conflict", Seen::Conflict),
    ("dead-committed", Seen::DeadCommitted),
    ("acked", Seen::Acked),
    ("gone", Seen::Gone),
    ("taken", Seen::Taken),
    ("reserved", Seen::Reserved),
    ("counted", Seen::Counted),
    ("recorded", Seen::Recorded),
    ("given-back", Seen::GivenBack),
    ("released", Seen::Released),
    ("refunded", Seen::Refunded),
    ("crashed", Seen::Crashed),
    ("replayed", Seen::Replayed),
    ("discarded", Seen::Discarded),
    ("died", Seen::Died),
    ("left", Seen::Left),
];

impl Seen {
    /// The step of this name; `None` if the model does not know it.
    pub(super) fn parse(name: &str) -> Option<Self> {
        NAMES.iter().find(|(of, _)| *of == name).map(|(_, seen)| *seen)
    }
}
