//! The transaction of a batch: the claims, the handlers one after another, the guard, and the commit.

use super::defect::Defect;
use super::state::{Batch, Claim, MESSAGES, Place, Row, State, Steps};
use super::world::{Handler, World};

const WORKER: &str = "the worker";

/// Begins with the claims of all deliveries that are there. A duplicate of a message that has a claim is done; a copy of
/// a message of the batch waits for that message.
pub(super) fn begin(steps: &mut Steps<'_>) {
    let (world, state) = (steps.world, steps.state);
    let mut members = [false; MESSAGES];
    let held = world.deliveries().filter(|(delivery, _)| state.deliveries[*delivery] == Place::Held { single: false });
    let held: Vec<(usize, usize)> = held.collect();
    for (_, message) in &held {
        members[*message] |= world.natural || state.messages[*message].claim == Claim::None;
    }
    if held.is_empty() {
        return;
    }
    steps.step(WORKER, "begins a batch with its claims", 0, |after| {
        let mut first = [true; MESSAGES];
        for (delivery, message) in held {
            let copy = !std::mem::take(&mut first[message]) && world.has(Defect::CopyAckedBeforeItsFirst);
            if !members[message] || copy {
                after.deliveries[delivery] = Place::Done;
            }
        }
        if members.contains(&true) {
            let batch = Batch { members, place: 0, effects: [false; MESSAGES], ended_by: None };
            after.batch = Some(batch);
        }
    });
}

/// Runs the next handler, or ends the batch.
pub(super) fn run(steps: &mut Steps<'_>, batch: Batch) {
    let world = steps.world;
    let Some(message) = (batch.place..world.handlers.len()).find(|message| batch.members[*message]) else {
        return end(steps, batch);
    };
    let number = u8::try_from(message).unwrap_or_default();
    let next = Batch { place: message + 1, ..batch };
    let ended = Batch { ended_by: Some(message), ..next };
    if let Some(culprit) = batch.ended_by {
        return outside(steps, next, message, culprit);
    }
    let finds_its_effect = world.natural && steps.state.messages[message].effects > 0;
    match world.handlers[message] {
        Handler::RunsCommit if finds_its_effect => {
            steps.step(WORKER, "runs the handler of _, which finds its effect", number, |after| {
                after.batch = Some(next)
            });
        }
        Handler::Succeeds => {
            let mut written = next;
            written.effects[message] = true;
            steps.step(WORKER, "runs the handler of _", number, |after| after.batch = Some(written));
        }
        Handler::Fails => {
            steps.step(WORKER, "runs the handler of _, which fails: the batch is rolled back", number, |after| {
                after.messages[message].failures += 1;
                fail(world, after, batch, Some(message));
            })
        }
        Handler::Kills => steps.step(WORKER, "runs the handler of _, which ends the process", number, crash),
        Handler::RunsCommit if world.has(Defect::CommitNotRefused) => {
            steps.step(WORKER, "runs the handler of _, which commits the batch", number, |after| {
                for member in (0..MESSAGES).filter(|member| batch.members[*member]) {
                    after.messages[member].claim = Claim::Dated;
                }
                (0..MESSAGES).filter(|member| batch.effects[*member]).for_each(|member| after.process(member));
                after.process(message);
                after.batch = Some(ended);
            });
        }
        Handler::RunsCommit if world.natural => {
            steps.step(WORKER, "runs the handler of _, which commits what was written so far", number, |after| {
                let written = (0..MESSAGES).filter(|member| batch.effects[*member] || *member == message);
                written.for_each(|member| after.process_naturally(member, false, false));
                after.batch = Some(ended);
            });
        }
        Handler::RunsCommit | Handler::RunsRollback => {
            let what = "runs the handler of _, whose COMMIT is refused or which rolls back: no transaction is left";
            steps.step(WORKER, what, number, |after| after.batch = Some(ended));
        }
    }
}

/// Runs a handler after the transaction has ended. The session is read-only outside of the transactions that idem
/// begins, so it cannot write; the one to blame is the message that has ended the transaction.
fn outside(steps: &mut Steps<'_>, next: Batch, message: usize, culprit: usize) {
    let world = steps.world;
    let number = u8::try_from(message).unwrap_or_default();
    if world.has(Defect::WritesOutsideTransactions) || world.has(Defect::NoGuard) {
        return steps.step(WORKER, "runs the handler of _ without a transaction", number, |after| {
            if world.has(Defect::WritesOutsideTransactions) {
                let known = &mut after.messages[message];
                known.effects += 1;
                known.kept = true;
            }
            after.batch = Some(next);
        });
    }
    steps.step(WORKER, "runs the handler of _, which cannot write: the batch is rolled back", number, |after| {
        fail(world, after, next, Some(culprit));
    });
}

/// The guard and the commit.
fn end(steps: &mut Steps<'_>, batch: Batch) {
    let world = steps.world;
    if batch.ended_by.is_some() && !world.has(Defect::NoGuard) {
        return steps.step(WORKER, "finds by the guard that the transaction is not its own", 0, |after| {
            fail(world, after, batch, batch.ended_by);
        });
    }
    let commit = |after: &mut State| {
        let own = batch.ended_by.is_none();
        (0..MESSAGES).filter(|member| own && batch.effects[*member]).for_each(|member| match world.natural {
            true => after.process_naturally(member, true, false),
            false => after.process(member),
        });
    };
    steps.step(WORKER, "commits the batch", 0, |after| {
        commit(after);
        after.batch = None;
        held(world, after, batch).for_each(|delivery| after.deliveries[delivery] = Place::Done);
    });
    if steps.state.losses == 0 {
        return;
    }
    for (done, what) in
        [(true, "commits the batch, and gets no answer"), (false, "loses its connection before the commit")]
    {
        steps.setback(WORKER, what, 0, |after| {
            after.losses -= 1;
            if done {
                commit(after);
            }
            after.batch = None;
            held(world, after, batch).for_each(|delivery| after.deliveries[delivery] = Place::Queued { again: true });
        });
    }
}

/// Nothing of the batch is committed by idem. The message to blame leaves it, and runs as a single delivery; the others run
/// again. If a handler has committed what was there, each runs as a single delivery. No attempt is recorded.
fn fail(world: &World, after: &mut State, batch: Batch, culprit: Option<usize>) {
    after.batch = None;
    if world.has(Defect::BatchRecordsAttempts) {
        for member in (0..MESSAGES).filter(|member| batch.members[*member]) {
            after.store(member, Row { attempts: 1, ..Row::default() });
        }
        return held(world, after, batch).for_each(|delivery| after.deliveries[delivery] = Place::Done);
    }
    let splits = world.natural && culprit.is_some_and(|culprit| world.handlers[culprit] == Handler::RunsCommit);
    let leaves = |message: usize| Some(message) == culprit || splits && batch.members[message];
    for (delivery, _) in world.deliveries().filter(|(_, message)| leaves(*message)) {
        if after.deliveries[delivery] == (Place::Held { single: false }) {
            after.deliveries[delivery] = Place::Held { single: true };
        }
    }
}

/// The deliveries of the batch, its copies included.
fn held(world: &World, state: &State, batch: Batch) -> impl Iterator<Item = usize> + use<> {
    let places = state.deliveries;
    let members = world.deliveries().filter(move |(_, message)| batch.members[*message]);
    members.map(|(delivery, _)| delivery).filter(move |delivery| places[*delivery] == Place::Held { single: false })
}

/// The process ends, and its open transaction is rolled back. Deliveries come again, and are marked.
pub(super) fn crash(after: &mut State) {
    after.batch = None;
    for place in &mut after.deliveries {
        if matches!(place, Place::Held { .. } | Place::Done) {
            *place = Place::Queued { again: true };
        }
    }
}
