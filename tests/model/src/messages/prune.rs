//! Time passes, leases end, and prune deletes old claims.

use super::database::{Claim, Holder, Reason, Row};
use super::defect::Defect;
use super::names::{WORLD, slot_name};
use super::state::Steps;
use super::task::Stage;

/// The lease of a worker ends although it lives: it was paused. While its transaction is open, the lock protects the row.
pub(super) fn pause(steps: &mut Steps<'_>) {
    let state = steps.state;
    if state.left.pauses == 0 {
        return;
    }
    for (message, row) in (0..).zip(state.rows) {
        let Some(Holder::Leased(slot)) = row.map(|row| row.holder) else { continue };
        if state.tasks[usize::from(slot)].is_some_and(|task| task.stage != Stage::Running) {
            steps.setback(slot_name(slot), "is paused for longer than its lease of _", message, |after| {
                after.left.pauses -= 1;
                after.change(message, |row| Row { holder: Holder::Expired(slot), ..row });
            });
        }
    }
}

/// The clock advances.
pub(super) fn tick(steps: &mut Steps<'_>) {
    if steps.state.left.ticks > 0 {
        steps.step(WORLD, "time passes", 0, |after| {
            after.left.ticks -= 1;
            after.clock += 1;
        });
    }
}

/// Deletes one claim: only a dated one, and only if its key has no inbox row, that of a conflict included. The highest
/// date deleted is written in the transaction of the delete. Prune may come upon the claims in any order.
pub(super) fn prune(steps: &mut Steps<'_>) {
    let (scenario, state) = (steps.world, steps.state);
    if let Some(date) = state.unwritten {
        steps.step(WORLD, "prune writes its cutoff", 0, |after| {
            after.pruned_through = after.pruned_through.max(Some(date));
            after.unwritten = None;
        });
    }
    if state.left.prunes == 0 {
        return;
    }
    for (key, claim) in state.claims.iter().enumerate() {
        let Some(Claim { message, date, .. }) = *claim else { continue };
        let mut rows = (0..).zip(state.rows).filter_map(|(of, row): (u8, _)| Some((of, row?)));
        let has_row = rows.any(|(of, row)| {
            let ignored = row.dead == Some(Reason::Conflict) && scenario.has(Defect::PruneBesideConflicts);
            usize::from(scenario.messages[usize::from(of)].key) == key && !ignored
        });
        let undated = scenario.has(Defect::PruneOfUndatedClaims) && date.is_none();
        if undated || date.is_some() && !has_row {
            steps.setback(WORLD, "prune deletes the claim of _", message, |after| {
                after.left.prunes -= 1;
                after.claims[key] = None;
                match scenario.defect {
                    Some(Defect::CutoffAfterTheDelete) => after.unwritten = date,
                    Some(Defect::CutoffOfTheLast) => after.pruned_through = date,
                    _ => after.pruned_through = after.pruned_through.max(date),
                }
            });
        }
    }
}
