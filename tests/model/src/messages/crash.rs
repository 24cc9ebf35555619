//! A process ends: its transactions are rolled back, its deliveries come again, and its rows keep their tokens and
//! starts. Another process takes its place.

use super::database::{Holder, Row};
use super::isolation;
use super::log::assign;
use super::names::{WORKER_NAMES, slot_name};
use super::scenario::Scenario;
use super::slot::{Slot, WORKERS, slots, worker};
use super::state::{Place, State, Steps};
use super::task::Work;

/// The handler of a message ends the process of its slot.
pub(super) fn by_handler(steps: &mut Steps<'_>, slot: Slot, message: u8) {
    for owner in owners(steps.world) {
        let (scenario, state) = (steps.world, steps.state);
        steps.step(slot_name(slot), "the handler of _ ends its process", message, |after| {
            after.facts[usize::from(message)].deaths += 1;
            isolation::charge(state, after, slot);
            end(scenario, after, worker(slot), owner);
        });
    }
}

/// A process is killed from outside.
pub(super) fn from_outside(steps: &mut Steps<'_>) {
    let (scenario, state) = (steps.world, steps.state);
    if state.left.kills == 0 {
        return;
    }
    for worker in (0..WORKERS).filter(|worker| slots(*worker).any(|slot| state.tasks[slot].is_some())) {
        for owner in owners(scenario) {
            steps.setback(WORKER_NAMES[worker], "its process is killed from outside", 0, |after| {
                after.left.kills -= 1;
                end(scenario, after, worker, owner);
            });
        }
    }
}

/// The workers that a log may assign the partition to.
pub(super) fn owners(scenario: &Scenario) -> std::ops::Range<u8> {
    0..if scenario.window.is_some() && scenario.workers > 1 { 2 } else { 1 }
}

fn end(scenario: &Scenario, after: &mut State, worker: usize, owner: u8) {
    for slot in slots(worker) {
        let Some(task) = after.tasks[slot].take() else { continue };
        let slot = Slot::try_from(slot).unwrap_or_default();
        match task.work {
            Work::Row(message, _) if after.has_token(message, slot) => {
                after.change(message, |row| Row { holder: Holder::Gone, ..row });
            }
            Work::Delivery(delivery) if after.deliveries[usize::from(delivery)] == Place::Held(slot) => {
                after.deliveries[usize::from(delivery)] = Place::Queued(true);
            }
            _ => {}
        }
    }
    if worker == usize::from(after.log.owner) {
        assign(scenario, after, owner);
    }
}
