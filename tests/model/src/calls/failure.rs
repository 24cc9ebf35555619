//! A worker ends, or is paused for longer than its lease.

use super::row::NAMES;
use super::state::{Holder, Row, Stage, State, Steps};

/// The failures of a worker.
pub(super) fn steps(steps: &mut Steps<'_>, worker: usize) {
    let state = steps.state;
    let number = u8::try_from(worker).unwrap_or_default();
    if state.workers[worker] == Stage::Idle {
        return;
    }
    if state.left.kills > 0 {
        steps.setback(NAMES[worker], "is killed", 0, |after| {
            after.left.kills -= 1;
            let holder = if after.has_token(worker) { Holder::Ending(number) } else { Holder::Nobody };
            lose(after, worker, holder);
            after.workers[worker] = Stage::Idle;
        });
    }
    if state.left.pauses > 0 && state.has_lease(worker) {
        steps.setback(NAMES[worker], "is paused for longer than its lease", 0, |after| {
            after.left.pauses -= 1;
            let holder = if after.has_token(worker) { Holder::Expired(number) } else { Holder::Nobody };
            lose(after, worker, holder);
        });
    }
}

/// Changes the holder of the row, if it is this worker, or was until an answer came late.
fn lose(after: &mut State, worker: usize, holder: Holder) {
    if after.has_token(worker) || after.has_lease(worker) {
        after.row = after.row.map(|row| Row { holder, ..row });
    }
}
