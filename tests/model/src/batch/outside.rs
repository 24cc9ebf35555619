//! The work outside of a batch: single deliveries, stored ones, rows, and acks. Their own failures are in `messages`; here each is
//! one step.

use super::defect::Defect;
use super::state::{Claim, Place, Row, State, Steps};
use super::transaction::crash;
use super::world::{Handler, MAX_ATTEMPTS, MAX_STARTS, World};

const WORKER: &str = "the worker";

/// The next step of a delivery outside of a batch.
pub(super) fn delivery(steps: &mut Steps<'_>, delivery: usize, message: usize) {
    let state = steps.state;
    let number = u8::try_from(message).unwrap_or_default();
    let known = state.messages[message].claim != Claim::None;
    let world = steps.world;
    let set = |after: &mut State, place| after.deliveries[delivery] = place;
    match state.deliveries[delivery] {
        Place::Queued { again: false } => {
            let single = world.stages && !world.has(Defect::StagesBesideOthers);
            steps.step(WORKER, "receives _", number, |after| set(after, Place::Held { single }));
        }
        Place::Queued { again: true } => {
            steps.step(WORKER, "stores _ as a row, unless it has a claim", number, |after| {
                if !known {
                    after.store(message, Row::default());
                }
                set(after, Place::Done);
            })
        }
        Place::Held { single: true } if known && !world.natural => {
            steps.step(WORKER, "finds a claim: _ is a duplicate", number, |after| set(after, Place::Done));
        }
        Place::Held { single: true } => steps.step(WORKER, "runs _ by itself", number, |after| {
            if run(world, after, message, false) {
                set(after, Place::Done);
            }
        }),
        Place::Held { single: false } | Place::Done | Place::Settled => {}
    }
}

/// Acks a delivery whose result is committed, also while a batch is open.
pub(super) fn ack(steps: &mut Steps<'_>, delivery: usize, message: usize) {
    if steps.state.deliveries[delivery] == Place::Done {
        let number = u8::try_from(message).unwrap_or_default();
        steps.step(WORKER, "acks _", number, |after| after.deliveries[delivery] = Place::Settled);
    }
}

/// Runs the row of a message.
pub(super) fn row(steps: &mut Steps<'_>, message: usize) {
    let Some(row) = steps.state.messages[message].row.filter(|row| !row.dead) else { return };
    let number = u8::try_from(message).unwrap_or_default();
    if row.starts >= MAX_STARTS {
        return steps.step(WORKER, "finds that the row of _ has had all its starts: it is dead", number, |after| {
            after.store(message, Row { dead: true, ..row });
        });
    }
    let world = steps.world;
    steps.step(WORKER, "runs the row of _", number, |after| {
        after.messages[message].row = Some(Row { starts: row.starts + 1, ..row });
        run(world, after, message, true);
    });
}

/// Runs a delivery or a row in a transaction of its own, and records the result. Returns whether the process is alive.
fn run(world: &World, after: &mut State, message: usize, of_row: bool) -> bool {
    let known = after.messages[message];
    let row = known.row.unwrap_or_default();
    // The failure of a natural copy is not recorded, because the key has a claim.
    let is_recorded = of_row || known.claim == Claim::None;
    let fail = |after: &mut State, dead| {
        after.messages[message].failures += 1;
        if is_recorded {
            after.store(message, Row { dead, starts: 0, attempts: row.attempts + 1 });
        }
    };
    match world.handlers[message] {
        // A natural handler that finds its effect does nothing.
        Handler::RunsCommit if world.natural && known.effects > 0 => after.process_naturally(message, true, of_row),
        Handler::Succeeds if world.natural => after.process_naturally(message, true, of_row),
        Handler::Succeeds => after.process(message),
        Handler::Fails => fail(after, row.attempts + 1 >= MAX_ATTEMPTS),
        Handler::RunsRollback => fail(after, true),
        // Where one message runs, its COMMIT is not refused.
        Handler::RunsCommit => {
            match world.natural {
                true => after.process_naturally(message, false, of_row),
                false => after.process(message),
            }
            fail(after, true);
        }
        Handler::Kills => {
            crash(after);
            return false;
        }
    }
    true
}
