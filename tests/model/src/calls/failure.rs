//! A worker ends, or is paused for longer than its lease.

use super::row::NAMES;
use super::state::{Holder, Row, Stage};
use super::steps::Steps;

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
            if after.has_token(worker) {
                after.row = after.row.map(|row| Row { holder: Holder::Ending(number), ..row });
            }
            after.workers[worker] = Stage::Idle;
        });
    }
    if state.left.pauses > 0 && state.has_lease(worker) {
        steps.setback(NAMES[worker], "is paused for longer than its lease", 0, |after| {
            after.left.pauses -= 1;
            after.row = after.row.map(|row| Row { holder: Holder::Expired(number), ..row });
        });
    }
}
