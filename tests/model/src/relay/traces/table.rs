//! The steps of the model, and the steps of a real relay that they stand for.

use crate::traces::shown::{self, Shown, Table};
use crate::traces::trace_step::TraceStep;

use Shown::{Free, Line, Never};

/// A relay takes the lease.
pub(super) const TAKES: &str = "takes the lease";
/// A lease ends although its relay lives.
pub(super) const PAUSED: &str = "is paused for longer than its lease";
/// The process of a relay ends.
pub(super) const KILLED: &str = "is killed";
/// A message arrives, or is lost: a line if its relay waits for the answer.
pub(super) const ARRIVES: [&str; 4] =
    ["refuses _", "takes _, and confirms it", "takes _, and its confirm is lost", "is away, and does not get _"];

/// Each sentence of the model's steps.
const TABLE: &Table = &[
    // staging: a read shows what was committed.
    ("stages _", &[Free]),
    ("commits its transaction with _", &[Free]),
    ("fails, and its transaction with _ is rolled back", &[Never]),
    // lease
    (TAKES, &[Line(TraceStep::LeaseTaken)]),
    ("renews its lease, which nobody has taken", &[Line(TraceStep::LeaseRenewed)]),
    ("releases the lease", &[Line(TraceStep::LeaseGiven)]),
    ("notices that it has lost the lease", &[Free]),
    (PAUSED, &[Free]),
    // The end of a process is that of all its work, and so more than one step.
    (KILLED, &[Never]),
    // publish: a read finds as many messages as its limit permits, and the model all of them.
    ("reads the outbox", &[Free]),
    ("publishes _", &[Line(TraceStep::Published)]),
    (ARRIVES[0], &[Line(TraceStep::Refused), Free]),
    (ARRIVES[1], &[Line(TraceStep::Confirmed), Free]),
    (ARRIVES[2], &[Line(TraceStep::Unconfirmed), Free]),
    (ARRIVES[3], &[Line(TraceStep::Unconfirmed), Free]),
    ("deletes _", &[Line(TraceStep::Deleted)]),
    ("deletes _, which is no longer its own: nothing", &[Free]),
    ("records the refusal of _", &[Line(TraceStep::RefusalRecorded)]),
    ("records the last refusal of _, and gives it up", &[Line(TraceStep::RefusalRecorded)]),
    ("records the refusal of _, which is no longer its own: nothing", &[Free]),
    ("records the refusal of _, which is gone: nothing", &[Free]),
    ("the next attempt of _ is due", &[Free]),
];

/// The entry of the step with this sentence; `None`: it has none.
pub(super) fn shown(sentence: &str) -> Option<&'static [Shown]> {
    shown::shown(TABLE, sentence)
}
