//! The broker: what it delivers, what it takes back, and how a log learns what is finished.

use super::crash::owners;
use super::defect::Defect;
use super::log::{assign, finished};
use super::names::{WORLD, slot_name};
use super::scenario::Scenario;
use super::slot::{Slot, worker};
use super::state::{Place, State, Steps};
use super::task::{Lock, Stage, Task, Work};

/// A slot without work receives a delivery.
pub(super) fn receive(steps: &mut Steps<'_>, slot: Slot) {
    let (scenario, state) = (steps.world, steps.state);
    let pruned = state.pruned_through.filter(|_| scenario.has(Defect::CutoffBeforeTheClaim));
    for delivery in 0..u8::try_from(scenario.deliveries()).unwrap_or_default() {
        let (place, message) = (state.deliveries[usize::from(delivery)], scenario.message_of(delivery));
        let Place::Queued(redelivered) = place else { continue };
        if scenario.message(message).published > state.clock || !permits(scenario, state, slot, delivery) {
            continue;
        }
        let stores = redelivered || state.log.marked[usize::from(delivery)];
        let what = if redelivered { "receives _, marked as redelivered" } else { "receives _" };
        steps.step(slot_name(slot), what, message, |after| {
            after.deliveries[usize::from(delivery)] = Place::Held(slot);
            let (work, stage) = (Work::Delivery(delivery), Stage::Received { stores, pruned });
            after.tasks[usize::from(slot)] = Some(Task { work, stage, lock: Lock::Free });
        });
    }
}

/// A log delivers in order, to its owner. With an order, the worker keeps the next delivery outside of its slots until
/// those before it are settled.
fn permits(scenario: &Scenario, state: &State, slot: Slot, delivery: u8) -> bool {
    if scenario.window.is_none() {
        return true;
    }
    let before = &state.deliveries[..usize::from(delivery)];
    worker(slot) == usize::from(state.log.owner)
        && delivery < state.log.received
        && !before.iter().any(|place| matches!(place, Place::Queued(_)))
        && (!scenario.ordered || before.iter().all(|place| *place == Place::Settled))
}

/// The broker takes back what it has delivered, and a log learns what is finished.
pub(super) fn steps(steps: &mut Steps<'_>) {
    let (scenario, state) = (steps.world, steps.state);
    if scenario.window.is_some() {
        let finished = finished(scenario, state);
        if finished > state.log.committed {
            steps.step(WORLD, "the log learns which deliveries are finished", 0, |after| {
                after.log.committed = finished;
            });
        }
    }
    if state.left.returns == 0 {
        return;
    }
    if scenario.window.is_some() {
        for owner in owners(scenario).filter(|owner| *owner != state.log.owner) {
            steps.setback(WORLD, "the log moves the partition to the other worker", 0, |after| {
                after.left.returns -= 1;
                assign(scenario, after, owner);
            });
        }
        return;
    }
    for (delivery, place) in (0..).zip(state.deliveries) {
        if matches!(place, Place::Held(_)) {
            let message = scenario.message_of(delivery);
            steps.setback(WORLD, "the broker takes the delivery of _ back, whose worker goes on", message, |after| {
                after.left.returns -= 1;
                after.deliveries[usize::from(delivery)] = Place::Queued(true);
            });
        }
    }
}
