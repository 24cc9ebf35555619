//! A message is taken over as an inbox row.

use super::classify::{existing, is_inserting, is_too_old, too_old};
use super::database::{Claim, Reason};
use super::defect::Defect;
use super::handler::gives_up;
use super::names::slot_name;
use super::scenario::Handler;
use super::slot::Slot;
use super::state::{State, Steps};
use super::task::Stage;

/// Takes the message over as an inbox row: the claim first, undated, then the row, in one commit.
pub(super) fn store(steps: &mut Steps<'_>, slot: Slot, message: u8, attempts: u8) {
    let (scenario, state) = (steps.world, steps.state);
    let key = scenario.key(message);
    let handler = scenario.message(message).handler;
    let permanent = attempts > 0 && handler == Handler::RunsRollback;
    if permanent && scenario.has(Defect::DeadRowWithoutClaim) {
        return steps.step(slot_name(slot), "writes that _ is dead, without a look at its claim", message, |after| {
            after.insert(message, attempts, Some(Reason::Failed));
            after.advance(slot, Stage::Settling);
        });
    }
    if let Some(claim) = state.claims[key] {
        return existing(steps, slot, message, claim);
    }
    if is_inserting(scenario, state, message) {
        return;
    }
    let ends: &[bool] = if permanent { &[true] } else { gives_up(handler, attempts) };
    if ends.contains(&false) && is_too_old(scenario, state, message, state.pruned_through) {
        return too_old(steps, slot, message);
    }
    let what = if attempts == 0 { "stores _ as a row" } else { "records the failure of _ as a row" };
    for dead in ends {
        steps.step(slot_name(slot), what, message, |after| {
            if attempts == 0 || !scenario.has(Defect::FailureStoredWithoutClaim) {
                after.claims[key] = Some(Claim::undated(message));
            }
            after.insert(message, attempts, dead.then_some(Reason::Failed));
            if attempts == 0 {
                after.stored(slot);
            }
            after.advance(slot, if scenario.ordered { Stage::WaitsForRow } else { Stage::Settling });
        });
    }
}

/// Writes that the handler committed its transaction by itself: its claim loses its date, and the row is dead. Only by
/// force is it replayed, since its effects may stand. Only a claim that is as the handler left it is changed, so that a
/// repeat after a lost answer changes nothing.
pub(super) fn committed_early(steps: &mut Steps<'_>, slot: Slot, message: u8, next: Option<Stage>) {
    let key = steps.world.key(message);
    let end = |after: &mut State| match next {
        Some(stage) => after.advance(slot, stage),
        None => after.end(slot),
    };
    let unchanged = steps.state.claims[key].is_some_and(|claim| claim.message == message && claim.early);
    if !unchanged && !steps.world.has(Defect::EarlyCommitWrittenAgain) {
        return steps.step(
            slot_name(slot),
            "finds that the claim of _ has changed since the handler's COMMIT",
            message,
            end,
        );
    }
    let write = |after: &mut State| {
        after.claims[key] = Some(Claim::undated(message));
        after.insert(message, 1, Some(Reason::Committed));
    };
    let what = "asks for the outcome of its transaction: the handler of _ committed it, and the message is dead";
    steps.step(slot_name(slot), what, message, |after| {
        write(after);
        end(after);
    });
    if steps.state.left.losses > 0 {
        steps.setback(slot_name(slot), "writes that _ is dead, and gets no answer", message, |after| {
            write(after);
            after.left.losses -= 1;
        });
    }
}

/// With an order, the delivery is settled when its row is processed or dead. Until then, the next message waits.
pub(super) fn wait_for_row(steps: &mut Steps<'_>, slot: Slot, message: u8) {
    if steps.state.rows[usize::from(message)].is_none_or(|row| row.dead.is_some()) {
        steps.step(slot_name(slot), "sees that the row of _ is processed or dead", message, |after| {
            after.advance(slot, Stage::Settling);
        });
    }
}
