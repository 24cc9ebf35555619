//! The classes of a message by the claim of its key: new, a duplicate, a conflict, or too old.

use super::database::{Claim, Reason};
use super::defect::Defect;
use super::names::slot_name;
use super::scenario::Scenario;
use super::slot::Slot;
use super::state::{State, Steps};
use super::task::{Stage, Work};

/// There is a claim. Equal fingerprints: a duplicate, whether the claim has a date or not, and nothing is written. Otherwise a
/// conflict, whose row is written while the claim is locked, so that it cannot go away meanwhile.
pub(super) fn existing(steps: &mut Steps<'_>, slot: Slot, message: u8, claim: Claim) {
    // In an order, an undated claim is no duplicate: its message comes first.
    let waits = steps.world.ordered && claim.date.is_none() && !steps.world.has(Defect::UndatedClaimEndsItsTurn);
    if claim.message == message || steps.world.has(Defect::NoFingerprintCompared) {
        return steps.step(slot_name(slot), "finds a claim: _ is a duplicate", message, |after| {
            after.advance(slot, if waits { Stage::WaitsForRow } else { Stage::Settling });
        });
    }
    steps.step(slot_name(slot), "finds the claim of another message: _ is a conflict, and dead", message, |after| {
        after.insert(message, 0, Some(Reason::Conflict));
        after.advance(slot, Stage::Settling);
    });
}

/// The message has no claim, but may have had one that was pruned: a dead letter, with the claim.
pub(super) fn too_old(steps: &mut Steps<'_>, slot: Slot, message: u8) {
    let key = steps.world.key(message);
    steps.step(
        slot_name(slot),
        "finds no claim, but a later pruning cutoff: _ is too old, and dead",
        message,
        |after| {
            after.claims[key] = Some(Claim::undated(message));
            after.insert(message, 0, Some(Reason::TooOld));
            after.advance(slot, Stage::Settling);
        },
    );
}

/// Whether an open transaction has inserted the claim of the message's key.
pub(super) fn is_inserting(scenario: &Scenario, state: &State, message: u8) -> bool {
    let key = scenario.key(message);
    state.busy().any(|(_, task)| {
        let Work::Delivery(delivery) = task.work else { return false };
        task.stage == Stage::Running && scenario.key(scenario.message_of(delivery)) == key
    })
}

/// Whether the message was published at or before the cutoff. The margin for clocks is 0 here.
pub(super) fn is_too_old(scenario: &Scenario, state: &State, message: u8, cutoff: Option<u8>) -> bool {
    let published = scenario.message(message).published;
    if scenario.has(Defect::CutoffByOwnRetention) && state.clock - published <= 1 {
        return false;
    }
    cutoff.is_some_and(|cutoff| published <= cutoff)
}
