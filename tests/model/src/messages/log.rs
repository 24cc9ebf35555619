//! A broker that is a log: how the owner of its partition counts what is finished, and marks what it receives.

use super::defect::Defect;
use super::scenario::Scenario;
use super::state::{DELIVERIES, Log, Place, State};

/// The partition is assigned to a worker: what the broker does not know to be finished comes again, without a mark.
pub(super) fn assign(scenario: &Scenario, after: &mut State, owner: u8) {
    let Some(window) = scenario.window else { return };
    let committed = after.log.committed;
    for delivery in usize::from(committed)..scenario.deliveries() {
        after.deliveries[delivery] = Place::Queued(false);
    }
    let marked = [false; DELIVERIES];
    after.log = Log { owner, received: committed, to_mark: committed + window, marked, committed };
    receive(scenario, after);
}

/// How many deliveries are finished, from the first on without a gap.
pub(super) fn finished(scenario: &Scenario, state: &State) -> u8 {
    let settled = state.deliveries[..scenario.deliveries()].iter().take_while(|place| **place == Place::Settled);
    u8::try_from(settled.count()).unwrap_or_default()
}

/// The owner receives each delivery as soon as it is not further beyond the finished ones than the window, and marks it
/// or not. If it received it later, it would mark it as well, or in addition.
fn receive(scenario: &Scenario, after: &mut State) {
    let Some(window) = scenario.window else { return };
    let count = u8::try_from(scenario.deliveries()).unwrap_or_default();
    let end = count.min(finished(scenario, after) + window);
    let log = &mut after.log;
    while log.received < end {
        log.marked[usize::from(log.received)] = log.received < log.to_mark;
        log.received += 1;
    }
}

/// A delivery is settled. If it was marked and not stored, it was a duplicate or is dead, and one more is marked.
pub(super) fn settled(scenario: &Scenario, after: &mut State, delivery: u8) {
    let marked = std::mem::take(&mut after.log.marked[usize::from(delivery)]);
    after.log.to_mark += u8::from(marked && !scenario.has(Defect::DuplicatesUseUpTheWindow));
    receive(scenario, after);
}
