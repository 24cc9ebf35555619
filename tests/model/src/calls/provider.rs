//! The provider: it charges once for a key, as long as it remembers the key.

use super::defect::Defect;
use super::row::NAMES;
use super::state::{Age, Stage, State, Steps, WORKERS};

/// The request of a worker arrives, or its answer is lost.
pub(super) fn steps(steps: &mut Steps<'_>, worker: usize) {
    let (world, state) = (steps.world, steps.state);
    let Some(number) = state.flying[worker] else { return };
    let key = state.keys[usize::from(number)];
    let replays = key.charged && !key.forgotten && !world.at_most_once;
    let what = if replays { "answers as before" } else { "charges" };
    let arrive = |after: &mut State| {
        after.flying[worker] = None;
        let known = &mut after.keys[usize::from(number)];
        if !replays {
            known.charged = true;
            after.charges += 1;
        }
        if known.age == Age::Unused {
            known.age = Age::Young;
        }
    };
    steps.step("the provider", what, 0, |after| {
        arrive(after);
        answer(after, worker, |_| Stage::Answered { key: number });
    });
    if state.left.busy > 0 {
        steps.setback("the provider", "answers that it is busy, and does nothing", 0, |after| {
            after.left.busy -= 1;
            after.flying[worker] = None;
            answer(after, worker, |first| Stage::NotDone { first });
        });
    }
    if state.left.losses > 0 && matches!(state.workers[worker], Stage::Calling { .. }) {
        steps.setback(NAMES[worker], "loses the connection of its call, whose request goes on", 0, |after| {
            after.left.losses -= 1;
            answer(after, worker, |_| Stage::Doubt);
        });
        steps.setback(NAMES[worker], "loses the connection of its call, and the request with it", 0, |after| {
            after.left.losses -= 1;
            after.flying[worker] = None;
            answer(after, worker, |_| Stage::Doubt);
        });
    }
}

/// A key gets old, and later the provider forgets it: not before a request that was sent while it was young has arrived.
pub(super) fn time(steps: &mut Steps<'_>) {
    let (world, state) = (steps.world, steps.state);
    for (number, key) in state.keys.iter().enumerate() {
        // A key is used only if the provider knows it until the end of the lease.
        let sends = (0..WORKERS).any(|worker| {
            let under = matches!(state.workers[worker], Stage::Sending { key, .. } if usize::from(key) == number);
            under && state.has_lease(worker)
        });
        let flies = sends || state.flying.iter().flatten().any(|flying| usize::from(*flying) == number);
        // A lease is shorter than the life of a key.
        let begins = (0..WORKERS).any(|worker| {
            let first = matches!(
                state.workers[worker],
                Stage::Fetched { first: true } | Stage::Sending { first: true, .. } | Stage::Calling { first: true }
            );
            first && state.has_lease(worker)
        });
        if key.age == Age::Young && !begins && !world.keys_last {
            steps.setback("", "the life of the key is almost over", 0, |after| after.keys[number].age = Age::Old);
        }
        let forgets = key.age == Age::Old && key.charged && !key.forgotten;
        if forgets && (!flies || world.has(Defect::KeyUsedToItsEnd)) {
            steps.setback("the provider", "forgets the key", 0, |after| after.keys[number].forgotten = true);
        }
    }
}

/// The worker gets an answer, if it still waits for one.
fn answer(after: &mut State, worker: usize, stage: impl Fn(bool) -> Stage) {
    if let Stage::Calling { first } = after.workers[worker] {
        after.workers[worker] = stage(first);
    }
}
