//! A delivery at a worker: claim, run, commit, ack; or stored as an inbox row.

use super::crash;
use super::defect::Defect;
use super::scenario::{Handler, MAX_ATTEMPTS, Scenario};
use super::state::{Claim, Holder, Isolation, Place, Reason, Row, Slot, Stage, State, Work, slots, worker};
use super::Steps;
use super::names::slot_name;

/// The steps of a slot that works on a delivery.
pub(super) fn steps(steps: &mut Steps<'_>, slot: Slot, delivery: u8, stage: Stage) {
    let message = steps.world.message_of(delivery);
    match stage {
        Stage::Received { stores: true, .. } if !steps.world.has(Defect::RedeliveredRunDirectly) => {
            store(steps, slot, message, 0);
        }
        Stage::Received { pruned, .. } => claim(steps, slot, message, pruned),
        Stage::Running => run(steps, slot, delivery, message),
        Stage::Failed => store(steps, slot, message, 1),
        Stage::Settling => settle(steps, slot, delivery, message),
        Stage::Taken | Stage::Reserved { .. } | Stage::Counting { .. } | Stage::Broke => {}
    }
}

/// Begins with the claim, which is dated: the short way. An existing claim answers at once, even while an inbox run dates
/// it. An uncommitted insert of another transaction is waited for.
fn claim(steps: &mut Steps<'_>, slot: Slot, message: u8, pruned: Option<u8>) {
    let (scenario, state) = (steps.world, steps.state);
    if is_kept_out(state, slot) {
        return;
    }
    if let Some(claim) = state.claims[scenario.key(message)] {
        return existing(steps, slot, message, claim);
    }
    if is_inserting(scenario, state, message) {
        if scenario.has(Defect::AckOnUncommittedClaim) {
            steps.step(slot_name(slot), "sees the uncommitted claim of _, a duplicate", message, |after| {
                after.advance(slot, Stage::Settling);
            });
        }
        return;
    }
    let cutoff = if scenario.has(Defect::CutoffBeforeTheClaim) { pruned } else { state.pruned_through };
    if is_too_old(scenario, state, message, cutoff) {
        return too_old(steps, slot, message);
    }
    steps.step(slot_name(slot), "begins with the claim of _, and runs its handler", message, |after| {
        if scenario.has(Defect::ClaimInOwnTransaction) {
            after.claims[scenario.key(message)] = Some(Claim { message, date: Some(after.clock) });
        }
        after.advance(slot, Stage::Running);
    });
}

/// Takes the message over as an inbox row: the claim first, undated, then the row, in one commit.
fn store(steps: &mut Steps<'_>, slot: Slot, message: u8, attempts: u8) {
    let (scenario, state) = (steps.world, steps.state);
    let key = scenario.key(message);
    if let Some(claim) = state.claims[key] {
        return existing(steps, slot, message, claim);
    }
    if is_inserting(scenario, state, message) {
        return;
    }
    let permanent = scenario.message(message).handler == Handler::RunsRollback;
    let dead = attempts > 0 && (permanent || attempts >= MAX_ATTEMPTS);
    if !dead && is_too_old(scenario, state, message, state.pruned_through) {
        return too_old(steps, slot, message);
    }
    let what = if attempts == 0 { "stores _ as a row" } else { "records the failure of _ as a row" };
    steps.step(slot_name(slot), what, message, |after| {
        if attempts == 0 || !scenario.has(Defect::FailureStoredWithoutClaim) {
            after.claims[key] = Some(Claim { message, date: None });
        }
        insert(after, message, attempts, dead.then_some(Reason::Failed));
        after.log.stored(slot);
        after.advance(slot, Stage::Settling);
    });
}

/// There is a claim. Equal fingerprints: a duplicate. Otherwise a conflict, whose row is written while the claim is
/// locked, so that it cannot go away meanwhile.
fn existing(steps: &mut Steps<'_>, slot: Slot, message: u8, claim: Claim) {
    let counts = steps.world.has(Defect::WindowCountsDuplicates);
    if claim.message == message || steps.world.has(Defect::NoFingerprintCompared) {
        return steps.step(slot_name(slot), "finds a claim: _ is a duplicate", message, |after| {
            if counts {
                after.log.stored(slot);
            }
            after.advance(slot, Stage::Settling);
        });
    }
    steps.step(slot_name(slot), "finds the claim of another message: _ is a conflict, and dead", message, |after| {
        insert(after, message, 0, Some(Reason::Conflict));
        after.advance(slot, Stage::Settling);
    });
}

/// The message has no claim, but may have had one that was pruned: a dead letter, with the claim.
fn too_old(steps: &mut Steps<'_>, slot: Slot, message: u8) {
    let key = steps.world.key(message);
    steps.step(slot_name(slot), "finds no claim, but a later pruning cutoff: _ is too old, and dead", message, |after| {
        after.claims[key] = Some(Claim { message, date: None });
        insert(after, message, 0, Some(Reason::TooOld));
        after.advance(slot, Stage::Settling);
    });
}

/// The handler, the guard and the commit.
fn run(steps: &mut Steps<'_>, slot: Slot, delivery: u8, message: u8) {
    let scenario = steps.world;
    if scenario.has(Defect::AckBeforeCommit) && steps.state.deliveries[usize::from(delivery)] == Place::Held(slot) {
        steps.step(slot_name(slot), "acks _", message, |after| after.deliveries[usize::from(delivery)] = Place::Settled);
    }
    match scenario.message(message).handler {
        Handler::Kills => crash::by_handler(steps, slot, message),
        Handler::Breaks => steps.step(slot_name(slot), "the handler of _ breaks its connection", message, |after| {
            after.facts[usize::from(message)].breaks += 1;
            after.advance(slot, Stage::Received { stores: true, pruned: None });
        }),
        Handler::RunsRollback if scenario.has(Defect::NoGuard) => {
            steps.step(slot_name(slot), "the handler of _ ran ROLLBACK, and COMMIT commits nothing", message, |after| {
                after.advance(slot, Stage::Settling);
            });
        }
        handler if fails(handler, steps.state, message) => {
            steps.step(slot_name(slot), "the handler of _ fails, and is rolled back", message, |after| {
                after.facts[usize::from(message)].failures += 1;
                after.advance(slot, Stage::Failed);
            });
        }
        _ => commit(steps, slot, message),
    }
}

/// The effect and the claim, in one commit. Without an answer, the delivery counts as redelivered: it is stored, and
/// finds its claim if the commit was done.
fn commit(steps: &mut Steps<'_>, slot: Slot, message: u8) {
    let key = steps.world.key(message);
    let commit = |after: &mut State| {
        after.claims[key] = Some(Claim { message, date: Some(after.clock) });
        effect(after, message);
    };
    steps.step(slot_name(slot), "commits the effect of _ with its claim", message, |after| {
        commit(after);
        after.advance(slot, Stage::Settling);
    });
    if steps.state.left.losses == 0 {
        return;
    }
    let next = match steps.world.defect {
        Some(Defect::UnansweredCommitIsSuccess) => Stage::Settling,
        _ => Stage::Received { stores: true, pruned: None },
    };
    let who = slot_name(slot);
    steps.setback(who, "commits the effect of _ with its claim, and gets no answer", message, |after| {
        commit(after);
        after.left.losses -= 1;
        after.advance(slot, next);
    });
    steps.setback(who, "loses its connection before the commit of _", message, |after| {
        after.left.losses -= 1;
        after.advance(slot, next);
    });
}

/// The ack. It is not sent if the broker has taken the delivery back.
fn settle(steps: &mut Steps<'_>, slot: Slot, delivery: u8, message: u8) {
    let place = usize::from(delivery);
    if steps.state.deliveries[place] != Place::Held(slot) {
        return steps.step(slot_name(slot), "is done with _, whose delivery it no longer has", message, |after| after.end(slot));
    }
    steps.step(slot_name(slot), "acks _", message, |after| {
        after.deliveries[place] = Place::Settled;
        after.end(slot);
    });
}

/// Whether the handler fails now, which rolls back.
pub(super) fn fails(handler: Handler, state: &State, message: u8) -> bool {
    match handler {
        Handler::Fails | Handler::RunsRollback => true,
        Handler::FailsOnce => state.facts[usize::from(message)].failures == 0,
        Handler::Succeeds | Handler::Kills | Handler::Breaks => false,
    }
}

/// Commits the effect of a message.
pub(super) fn effect(after: &mut State, message: u8) {
    let facts = &mut after.facts[usize::from(message)];
    facts.effects += 1;
    facts.kept = true;
}

/// Inserts a row, unless the message has one.
pub(super) fn insert(after: &mut State, message: u8, attempts: u8, dead: Option<Reason>) {
    let new = Row { dead, holder: Holder::Nobody, starts: 0, breaks: 0, attempts };
    after.rows[usize::from(message)].get_or_insert(new);
    after.facts[usize::from(message)].kept = true;
}

/// Whether an open transaction has inserted the claim of the message's key.
fn is_inserting(scenario: &Scenario, state: &State, message: u8) -> bool {
    let key = scenario.key(message);
    state.busy().any(|(_, task)| {
        let Work::Delivery(delivery) = task.work else { return false };
        task.stage == Stage::Running && scenario.key(scenario.message_of(delivery)) == key
    })
}

/// Whether a suspect keeps a delivery of the slot's worker from running.
fn is_kept_out(state: &State, slot: Slot) -> bool {
    slots(worker(slot)).filter_map(|other| state.tasks[other]).any(|task| {
        task.isolates() == Isolation::Everything
    })
}

/// Whether the message was published at or before the cutoff. The margin for clocks is 0 here.
fn is_too_old(scenario: &Scenario, state: &State, message: u8, cutoff: Option<u8>) -> bool {
    let published = scenario.message(message).published;
    if scenario.has(Defect::CutoffByOwnRetention) && state.clock - published <= 1 {
        return false;
    }
    cutoff.is_some_and(|cutoff| published <= cutoff)
}
