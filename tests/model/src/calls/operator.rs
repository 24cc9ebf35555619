//! An operator replays a row whose attempts have ended, and restores a backup.

use super::defect::Defect;
use super::state::{Death, Holder, Row, Stage, WORKERS};
use super::steps::Steps;

/// What an operator does.
pub(super) fn steps(steps: &mut Steps<'_>) {
    replay(steps);
    back_up(steps);
}

/// A replayed row keeps the end of its lease, since its request may be on its way.
fn replay(steps: &mut Steps<'_>) {
    let (world, state) = (steps.world, steps.state);
    let Some(row) = state.row.filter(|row| row.dead == Some(Death::Exhausted)) else { return };
    if state.left.replays == 0 {
        return;
    }
    let holder = if world.has(Defect::ReplayEndsTheLease) { Holder::Nobody } else { row.holder };
    steps.setback("an operator", "replays the row", 0, |after| {
        after.left.replays -= 1;
        after.row = Some(Row { dead: None, holder, ..row });
    });
}

/// The database is as it was at the backup. The provider is not. All workers are stopped for it, for longer than a request
/// takes.
fn back_up(steps: &mut Steps<'_>) {
    let state = steps.state;
    if state.left.restores == 0 {
        return;
    }
    match (state.saved, state.row) {
        (None, Some(row)) => steps.setback("an operator", "backs the database up", 0, |after| {
            after.saved = Some(Row { holder: Holder::Nobody, ..row });
        }),
        (Some(saved), _) if state.flying.iter().all(Option::is_none) => {
            steps.setback("an operator", "restores the backup", 0, |after| {
                after.left.restores -= 1;
                after.saved = None;
                after.row = Some(saved);
                after.completed = 0;
                after.workers = [Stage::Idle; WORKERS];
            });
        }
        _ => {}
    }
}
