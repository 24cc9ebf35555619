//! A delivery at a worker: claim, run, commit, ack.

use super::classify::{existing, is_inserting, is_too_old, too_old};
use super::crash;
use super::database::Claim;
use super::defect::Defect;
use super::handler::{Act, acts, effect};
use super::isolation;
use super::log;
use super::names::{AGAIN, slot_name};
use super::outage;
use super::scenario::Handler;
use super::slot::Slot;
use super::state::{Place, State, Steps};
use super::storing::{committed_early, store, wait_for_row};
use super::task::Stage;

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
        Stage::CommittedEarly => committed_early(steps, slot, message, Some(Stage::Settling)),
        Stage::WaitsForRow if steps.state.deliveries[usize::from(delivery)] == Place::Held(slot) => {
            wait_for_row(steps, slot, message);
        }
        Stage::Settling | Stage::WaitsForRow => settle(steps, slot, delivery, message),
        Stage::Cut => outage::cut(steps, slot, Stage::Received { stores: true, pruned: None }, message),
        Stage::Fetched | Stage::Waiting | Stage::Broke => {}
    }
}

/// Begins with the claim, which is dated: the short way. An existing claim answers at once, even while an inbox run dates
/// it. An uncommitted insert of another transaction is waited for.
fn claim(steps: &mut Steps<'_>, slot: Slot, message: u8, pruned: Option<u8>) {
    let (scenario, state) = (steps.world, steps.state);
    if isolation::is_kept_out(scenario, state, slot) {
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
            after.claims[scenario.key(message)] = Some(Claim::dated(message, after.clock));
        }
        after.advance(slot, Stage::Running);
    });
}

/// The handler, the guard and the commit.
fn run(steps: &mut Steps<'_>, slot: Slot, delivery: u8, message: u8) {
    let scenario = steps.world;
    if scenario.has(Defect::AckBeforeCommit) && steps.state.deliveries[usize::from(delivery)] == Place::Held(slot) {
        steps
            .step(slot_name(slot), "acks _", message, |after| after.deliveries[usize::from(delivery)] = Place::Settled);
    }
    let handler = scenario.message(message).handler;
    if handler == Handler::RunsRollback && scenario.has(Defect::NoGuard) {
        let what = "the handler of _ ran ROLLBACK, and COMMIT commits nothing";
        return steps.step(slot_name(slot), what, message, |after| after.advance(slot, Stage::Settling));
    }
    for act in acts(handler, steps.state, message) {
        match act {
            Act::Kills => crash::by_handler(steps, slot, message),
            Act::Breaks => steps.step(slot_name(slot), "the handler of _ breaks its connection", message, |after| {
                after.facts[usize::from(message)].breaks += 1;
                after.advance(slot, Stage::Received { stores: true, pruned: None });
            }),
            Act::RunsCommit => runs_commit(steps, slot, message),
            Act::Fails => steps.step(slot_name(slot), "the handler of _ fails, and is rolled back", message, |after| {
                after.facts[usize::from(message)].failures += 1;
                after.advance(slot, Stage::Failed);
            }),
            Act::Succeeds => commit(steps, slot, message),
        }
    }
    if steps.state.left.again > 0 {
        steps.setback(slot_name(slot), AGAIN, message, |after| {
            after.left.again -= 1;
            after.advance(slot, Stage::Received { stores: false, pruned: None });
        });
    }
}

/// The handler commits the transaction by itself, and with it the claim, and the run is cut off. Before anything is
/// decided, another connection asks how the transaction ended.
fn runs_commit(steps: &mut Steps<'_>, slot: Slot, message: u8) {
    let (key, unasked) = (steps.world.key(message), steps.world.has(Defect::OutcomeNotAsked));
    steps.step(slot_name(slot), "the handler of _ runs COMMIT, and loses its connection", message, |after| {
        after.claims[key] = Some(Claim { early: true, ..Claim::dated(message, after.clock) });
        effect(after, message);
        after.facts[usize::from(message)].failures += 1;
        let redelivered = Stage::Received { stores: true, pruned: None };
        after.advance(slot, if unasked { redelivered } else { Stage::CommittedEarly });
    });
}

/// The effect and the claim, in one commit. Without an answer, the delivery counts as redelivered: it is stored, and
/// finds its claim if the commit was done.
fn commit(steps: &mut Steps<'_>, slot: Slot, message: u8) {
    let key = steps.world.key(message);
    let commit = |after: &mut State| {
        after.claims[key] = Some(Claim::dated(message, after.clock));
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
    let (scenario, place) = (steps.world, usize::from(delivery));
    if steps.state.deliveries[place] != Place::Held(slot) {
        return steps.step(slot_name(slot), "is done with _, whose delivery it no longer has", message, |after| {
            after.end(slot)
        });
    }
    steps.step(slot_name(slot), "acks _", message, |after| {
        after.deliveries[place] = Place::Settled;
        after.end(slot);
        log::settled(scenario, after, delivery);
    });
}
