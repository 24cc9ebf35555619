//! A worker and the row: take, decide, record, complete.

use super::defect::Defect;
use super::state::{Age, Death, Holder, KEYS, Row, Stage, State};
use super::steps::Steps;
use super::world::World;

/// The names of the workers.
pub(super) const NAMES: [&str; 2] = ["worker A", "worker B"];

/// Takes the row if it is due, and sets the time of the first call, before the call: one committed statement. A lease
/// outlasts the timeout of a call, so no request of an earlier holder is on its way, unless the world lets one outlive it.
pub(super) fn take(steps: &mut Steps<'_>, worker: usize) {
    let (world, state) = (steps.world, steps.state);
    let Some(row) = state.row.filter(|row| row.dead.is_none()) else { return };
    let due = match row.holder {
        Holder::Nobody => true,
        Holder::Leased(_) => false,
        Holder::Expired(holder) | Holder::Ending(holder) => {
            let is_over = state.flying[usize::from(holder)].is_none() || world.outlives;
            is_over || world.has(Defect::LeaseShorterThanTheCall)
        }
    };
    if !due || state.workers[worker] != Stage::Idle {
        return;
    }
    let called = row.called || !world.has(Defect::CalledAtAfterTheCall);
    let made = state.unused_key().filter(|_| world.has(Defect::KeyMadeAtTheTake) && !row.called);
    let what = if called { "takes the row, which says that a call has begun" } else { "takes the row" };
    steps.step(NAMES[worker], what, 0, |after| {
        let holder = Holder::Leased(u8::try_from(worker).unwrap_or_default());
        let taken = Row { holder, called, key: made.unwrap_or(row.key), ..row };
        after.row = Some(taken);
        used(after, taken);
        after.workers[worker] = Stage::Taken { first: !row.called };
    });
}

/// Decides about a row that was taken: with an answer it is completed, with a usable key the provider is called, and
/// otherwise the provider is asked.
pub(super) fn decide(steps: &mut Steps<'_>, worker: usize, first: bool) {
    let (world, state) = (steps.world, steps.state);
    let Some(row) = state.row.filter(|_| state.has_lease(worker) || world.has(Defect::CallsAfterItsLease)) else {
        return forget(steps, worker, "sees by its clock that its lease is over");
    };
    if row.answer && !world.has(Defect::KeptAnswerIgnored) {
        return steps.step(NAMES[worker], "finds the answer in the row", 0, |after| {
            after.workers[worker] = Stage::Answered;
        });
    }
    let key = state.keys[usize::from(row.key)];
    // Without the time of the first call, every key looks new.
    let old = key.age == Age::Old && (row.called || !first);
    let begun = world.once && !first && !world.has(Defect::BegunCallRepeated);
    if world.has(Defect::KeyChangedOnRetry) && !first || old && world.has(Defect::NewKeyWithoutAsking) {
        return renew(steps, worker, "uses a new key");
    }
    let usable = world.has(Defect::OldKeyUsedAgain) || world.has(Defect::KeyUsedToItsEnd) && !key.forgotten;
    if (old && !usable) || begun {
        return reconcile(steps, worker, row);
    }
    steps.step(NAMES[worker], "begins a call", 0, |after| {
        after.recalled |= row.answer;
        after.workers[worker] = Stage::Sending { first, key: row.key };
    });
}

/// Polls the call, which sends its request. A worker looks at its lease before each poll: after a pause it sends nothing, and
/// its call is in doubt.
pub(super) fn send(steps: &mut Steps<'_>, worker: usize, first: bool, key: u8) {
    let (world, state) = (steps.world, steps.state);
    let looks = !world.has(Defect::CallsAfterItsLease) && !world.has(Defect::SendsAfterAPause);
    if looks && !state.has_lease(worker) {
        return steps.step(NAMES[worker], "sees before it sends that its lease is over", 0, |after| {
            after.workers[worker] = Stage::Doubt;
        });
    }
    steps.step(NAMES[worker], "sends its request", 0, |after| {
        after.flying[worker] = Some(key);
        after.workers[worker] = Stage::Calling { first };
    });
}

/// Asks the provider what became of the call. There: complete. Not there: a new key. Unknown: dead, unresolved.
fn reconcile(steps: &mut Steps<'_>, worker: usize, row: Row) {
    let (world, state) = (steps.world, steps.state);
    if world.reconciles && state.keys[usize::from(row.key)].charged {
        steps.step(NAMES[worker], "asks the provider, which has charged", 0, |after| {
            after.workers[worker] = Stage::Answered;
        });
    } else if world.reconciles {
        renew(steps, worker, "asks the provider, which has not charged, and uses a new key");
    } else if state.has_token(worker) {
        steps.step(NAMES[worker], "cannot know what became of the call: the row is dead, unresolved", 0, |after| {
            after.row = Some(Row { dead: Some(Death::Unresolved), holder: Holder::Nobody, ..row });
            after.workers[worker] = Stage::Idle;
        });
    } else {
        forget(steps, worker, "finds that the row no longer has its token");
    }
}

/// A new key is written to the row before it is used, by the token. It follows from the old one, so that a backup has it, and it
/// counts from now.
fn renew(steps: &mut Steps<'_>, worker: usize, what: &'static str) {
    let (world, state) = (steps.world, steps.state);
    let row = state.row.filter(|_| state.has_token(worker));
    let key = match world.has(Defect::NextKeyRandom) {
        true => state.unused_key(),
        false => row.map(|row| row.key + 1).filter(|key| usize::from(*key) < KEYS),
    };
    let Some((row, key)) = row.zip(key) else {
        return forget(steps, worker, "finds that the row no longer has its token");
    };
    steps.step(NAMES[worker], what, 0, |after| {
        after.row = Some(Row { key, called: true, ..row });
        after.keys[usize::from(key)].age = Age::Young;
        after.workers[worker] = Stage::Taken { first: true };
    });
}

/// Keeps the answer, and completes with it when the row is taken again: the effect of the answer, the date of the claim and
/// the delete of the row by its token, in one commit. If the handler fails, its failure is recorded, and the answer stays.
pub(super) fn complete(steps: &mut Steps<'_>, worker: usize) {
    let (world, state) = (steps.world, steps.state);
    if state.row.is_some_and(|row| !row.answer) && !world.has(Defect::AnswerNotKept) {
        return record(steps, worker, "keeps the answer", |_, _, row| Row {
            answer: true,
            called: true,
            holder: Holder::Nobody,
            ..row
        });
    }
    let unfenced = world.has(Defect::CompletedWithoutToken);
    if !state.has_token(worker) && !unfenced {
        return forget(steps, worker, "has an answer, but the row no longer has its token");
    }
    steps.step(NAMES[worker], "completes with the answer", 0, |after| {
        after.row = None;
        after.completed += 1;
        after.workers[worker] = Stage::Idle;
    });
    let Some(row) = state.row.filter(|_| state.left.failures > 0) else { return };
    steps.setback(NAMES[worker], "fails to complete, and records the failure", 0, |after| {
        after.left.failures -= 1;
        let answer = !world.has(Defect::AnswerNotKept);
        after.row = Some(Row { answer, called: true, holder: Holder::Nobody, ..row });
        after.workers[worker] = Stage::Idle;
    });
}

/// Records that a call had no effect: the row is due, and if that was its first call, none has begun.
pub(super) fn not_done(steps: &mut Steps<'_>, worker: usize, first: bool) {
    record(steps, worker, "records that its call had no effect", |world, after, row| {
        let unused = first && !world.has(Defect::BusyIsADoubt);
        if unused {
            after.keys[usize::from(row.key)].age = Age::Unused;
        }
        Row { called: row.called && !unused, holder: Holder::Nobody, ..row }
    });
}

/// Records that a call is in doubt. The lease is left to end, since the request may still be on its way. After the last attempt
/// the row is dead, and can be replayed.
pub(super) fn doubt(steps: &mut Steps<'_>, worker: usize) {
    let number = u8::try_from(worker).unwrap_or_default();
    let row = steps.state.row.filter(|_| steps.state.left.replays > 0 && steps.state.has_token(worker));
    if let Some(row) = row {
        steps.setback(NAMES[worker], "records that its call is in doubt, and was the last attempt", 0, |after| {
            let (dead, holder) = (Some(Death::Exhausted), Holder::Ending(number));
            after.row = Some(Row { called: true, dead, holder, ..row });
            after.workers[worker] = Stage::Idle;
        });
    }
    record(steps, worker, "records that its call is in doubt", |world, _, row| {
        let at_once = world.has(Defect::DoubtGivesBackAtOnce);
        Row { called: true, holder: if at_once { Holder::Nobody } else { Holder::Ending(number) }, ..row }
    });
}

/// Changes the row by its token.
fn record(
    steps: &mut Steps<'_>,
    worker: usize,
    what: &'static str,
    change: impl FnOnce(&World, &mut State, Row) -> Row,
) {
    let world = steps.world;
    let Some(row) = steps.state.row.filter(|_| steps.state.has_token(worker)) else {
        return forget(steps, worker, "finds that the row no longer has its token");
    };
    steps.step(NAMES[worker], what, 0, |after| {
        after.row = Some(change(world, after, row));
        after.workers[worker] = Stage::Idle;
    });
}

fn forget(steps: &mut Steps<'_>, worker: usize, what: &'static str) {
    steps.step(NAMES[worker], what, 0, |after| after.workers[worker] = Stage::Idle);
}

/// The key of the row is in use from now on, where the row says so.
fn used(after: &mut State, row: Row) {
    let key = &mut after.keys[usize::from(row.key)];
    if row.called && key.age == Age::Unused {
        key.age = Age::Young;
    }
}
