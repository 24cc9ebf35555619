//! The steps of the model, and the steps of a real worker that they stand for.

use crate::messages::names::AGAIN;
use crate::traces::shown::{self, Shown, Table};
use crate::traces::trace_step::TraceStep;

use Shown::{Answered, Free, Line, Never, Unanswered};

/// A worker receives a delivery.
pub(super) const RECEIVES: [&str; 2] = ["receives _", "receives _, marked as redelivered"];
/// The broker takes a delivery back.
pub(super) const TAKEN_BACK: &str = "the broker takes the delivery of _ back, whose worker goes on";
/// A lease ends although its worker lives.
pub(super) const PAUSED: &str = "is paused for longer than its lease of _";

/// Each sentence of the model's steps.
const TABLE: &Table = &[
    (RECEIVES[0], &[Free]),
    (RECEIVES[1], &[Free]),
    (TAKEN_BACK, &[Free]),
    (PAUSED, &[Free]),
    // claims, classify, storing
    ("begins with the claim of _, and runs its handler", &[Line(TraceStep::Claimed)]),
    ("commits the effect of _ with its claim", &[Answered(TraceStep::Committed)]),
    ("commits the effect of _ with its claim, and gets no answer", &[Unanswered(TraceStep::Committed)]),
    ("loses its connection before the commit of _", &[Unanswered(TraceStep::Committed), Line(TraceStep::RolledBack)]),
    ("the handler of _ fails, and is rolled back", &[Line(TraceStep::RolledBack)]),
    ("the handler of _ breaks its connection", &[Line(TraceStep::RolledBack)]),
    (AGAIN, &[Line(TraceStep::RolledBack)]),
    ("the handler of _ runs COMMIT, and loses its connection", &[Line(TraceStep::EndedByHandler)]),
    ("finds a claim: _ is a duplicate", &[Free]),
    ("finds the claim of another message: _ is a conflict, and dead", &[Line(TraceStep::Conflict)]),
    ("stores _ as a row", &[Line(TraceStep::Stored)]),
    ("records the failure of _ as a row", &[Line(TraceStep::Failed)]),
    (
        "asks for the outcome of its transaction: the handler of _ committed it, and the message is dead",
        &[Answered(TraceStep::DeadCommitted)],
    ),
    ("writes that _ is dead, and gets no answer", &[Unanswered(TraceStep::DeadCommitted)]),
    ("finds that the claim of _ has changed since the handler's COMMIT", &[Free]),
    ("acks _", &[Line(TraceStep::Acked)]),
    ("is done with _, whose delivery it no longer has", &[Free]),
    // rows, isolation
    ("fetches the row of _", &[Line(TraceStep::Fetched)]),
    ("deletes the row of _ in a transaction, and runs its handler", &[Line(TraceStep::Started)]),
    ("commits the effect of _ and the delete of its row", &[Answered(TraceStep::Committed)]),
    ("commits the effect of _ and the delete of its row, and gets no answer", &[Unanswered(TraceStep::Committed)]),
    ("loses its connection in the run of _", &[Unanswered(TraceStep::Committed), Line(TraceStep::RolledBack)]),
    ("records how its run of _ ended", &[Answered(TraceStep::Recorded)]),
    ("records how its run of _ ended, and gets no answer", &[Unanswered(TraceStep::Recorded)]),
    ("finds that the row of _ no longer has its token", &[Free]),
    ("snoozes the row of _, not run", &[Line(TraceStep::Snoozed)]),
    ("finds that it has lost the lease of _, and refunds its start", &[Line(TraceStep::Refunded)]),
    ("finds that it has lost the lease of _, and cannot refund its start", &[Free]),
    ("waits for the lock that the row of _ needs, which may have ended its process", &[Free]),
    ("sees that no row is due that needs the lock", &[Free]),
    ("waits no longer for the lock", &[Free]),
    ("has the lock, and fetches the row of _", &[Line(TraceStep::Fetched)]),
    ("takes the lock of the row of _ again", &[Never]),
    ("finds that the outage has ended its run of _", &[Never]),
    ("the database is back", &[Never]),
    ("the database of some messages is away", &[Never]),
    ("the row of _ has had all its starts: it is dead, crashed", &[Line(TraceStep::Crashed)]),
    // crash, operator
    ("its process is killed from outside", &[Line(TraceStep::Died)]),
    ("an operator replays _", &[Line(TraceStep::Replayed)]),
    ("an operator discards _", &[Line(TraceStep::Discarded)]),
    ("an operator sends the conflict _ back without its key", &[Never]),
    ("an operator forgets the claim of _", &[Never]),
    // Handlers that end their process do so from outside, as far as a trace can tell.
    ("the handler of _ ends its process", &[Never]),
    // Time, prune and logs.
    ("finds no claim, but a later pruning cutoff: _ is too old, and dead", &[Never]),
    ("time passes", &[Never]),
    ("prune writes its cutoff", &[Never]),
    ("prune deletes the claim of _", &[Never]),
    ("the log learns which deliveries are finished", &[Never]),
    ("the log moves the partition to the other worker", &[Never]),
    ("sees that the row of _ is processed or dead", &[Never]),
    ("finds the key of _ anew, and takes it over in place of its row", &[Never]),
    ("finds the key of _ anew, takes it over in place of its row, and gets no answer", &[Never]),
    // Defects.
    ("sees the uncommitted claim of _, a duplicate", &[Never]),
    ("the handler of _ ran ROLLBACK, and COMMIT commits nothing", &[Never]),
    ("writes that _ is dead, without a look at its claim", &[Never]),
    ("fetches the row of _, and gets no answer", &[Never]),
    ("has the lock, fetches the row of _, and gets no answer", &[Never]),
    ("deletes the row of _, and dates its claim", &[Never]),
    ("commits the effect of _ alone", &[Never]),
    ("finds that it has lost the lease of _, refunds its start, and gets no answer", &[Never]),
    ("an operator discards _, which is scheduled", &[Never]),
];

/// What a step of the model with this sentence is in a trace; `None`: it has no entry.
pub(super) fn shown(sentence: &str) -> Option<&'static [Shown]> {
    shown::shown(TABLE, sentence)
}
