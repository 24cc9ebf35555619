//! Two workers are equal, and so are the slots of each and the copies of a message: states that differ only in their names
//! are searched once.

use super::database::Holder;
use super::scenario::Scenario;
use super::slot::{ALL, SLOTS, Slot};
use super::state::{Place, State};
use super::task::{Lock, Stage, Task, Work};

/// The state that stands for all that differ only in the names of slots and copies.
pub(super) fn canonical(scenario: &Scenario, state: State) -> State {
    let named = slots(scenario, state);
    // A log delivers in order, which tells copies apart.
    if scenario.window.is_some() { named } else { copies(scenario, named) }
}

/// Sorts the deliveries of each message by where they are and by the slots that work on them.
fn copies(scenario: &Scenario, mut state: State) -> State {
    let count = scenario.deliveries();
    let works = |state: &State, delivery: usize| {
        state
            .tasks
            .map(|task| task.is_some_and(|task| matches!(task.work, Work::Delivery(of) if usize::from(of) == delivery)))
    };
    let of = |delivery: usize| u8::try_from(delivery).unwrap_or_default();
    for first in 0..count {
        for second in first + 1..count {
            let copy = scenario.message_of(of(first)) == scenario.message_of(of(second));
            let rank = |delivery: usize| (state.deliveries[delivery], works(&state, delivery));
            if copy && rank(second) < rank(first) {
                swap(&mut state, first, second);
            }
        }
    }
    state
}

/// Exchanges the names of two deliveries.
fn swap(state: &mut State, first: usize, second: usize) {
    state.deliveries.swap(first, second);
    for task in state.tasks.iter_mut().flatten() {
        let Work::Delivery(delivery) = &mut task.work else { continue };
        let other = if usize::from(*delivery) == first { second } else { first };
        if [first, second].contains(&usize::from(*delivery)) {
            *delivery = u8::try_from(other).unwrap_or_default();
        }
    }
}

/// A task without the names of slots and copies.
type Rank = Option<(Work, Stage, Lock, Option<Place>)>;

fn rank(scenario: &Scenario, state: &State, slot: Slot) -> Rank {
    let Task { work, stage, lock } = state.tasks[usize::from(slot)]?;
    let nameless = |holder: Slot| if holder == slot { 0 } else { 1 };
    Some(match work {
        Work::Delivery(delivery) => {
            let place = match state.deliveries[usize::from(delivery)] {
                Place::Held(holder) => Place::Held(nameless(holder)),
                place => place,
            };
            (Work::Delivery(scenario.message_of(delivery)), stage, lock, Some(place))
        }
        Work::Row(message, _) => (work, stage, lock, state.has_token(message, slot).then_some(Place::Held(0))),
        Work::Turn(_) => (work, stage, lock, None),
    })
}

/// Sorts the slots of each worker by their tasks, and then the workers.
fn slots(scenario: &Scenario, state: State) -> State {
    let mut order: [Slot; ALL] = [0, 1, 2, 3];
    let ranks = order.map(|slot| rank(scenario, &state, slot));
    let rank = |slot: Slot| ranks[usize::from(slot)];
    let [one, two] = [0, SLOTS].map(|first| {
        let (a, b) = (order[first], order[first + 1]);
        if rank(a) <= rank(b) { [a, b] } else { [b, a] }
    });
    // A log has one owner, which tells the workers apart.
    let swap = one.map(rank) > two.map(rank) && scenario.window.is_none();
    order = if swap { [two[0], two[1], one[0], one[1]] } else { [one[0], one[1], two[0], two[1]] };
    if order == [0, 1, 2, 3] {
        return state;
    }
    let mut names: [Slot; ALL] = [0; ALL];
    for (new, old) in (0..).zip(order) {
        names[usize::from(old)] = new;
    }
    let name = |slot: Slot| names[usize::from(slot)];
    let mut named = state.clone();
    for (new, old) in order.into_iter().enumerate() {
        named.tasks[new] = state.tasks[usize::from(old)];
    }
    for place in &mut named.deliveries {
        if let Place::Held(slot) = place {
            *slot = name(*slot);
        }
    }
    for row in named.rows.iter_mut().flatten() {
        if let Holder::Leased(slot) | Holder::Expired(slot) = &mut row.holder {
            *slot = name(*slot);
        }
    }
    named
}
