//! A worker and the row: fetch, decide, record, complete.

use super::defect::Defect;
use super::state::{Age, Death, Holder, Row, Stage, State, Steps};
use super::world::World;

/// The names of the workers.
pub(super) const NAMES: [&str; 2] = ["worker A", "worker B"];

/// Fetches the row if it is due, and sets the time of the first call, before the call: one committed statement. A lease
/// outlasts the timeout of a call, so no request of an earlier holder is on its way, unless the world lets one outlive it.
pub(super) fn fetch(steps: &mut Steps<'_>, worker: usize) {
    let (world, state) = (steps.world, steps.state);
    let Some(row) = state.row.filter(|row| row.dead.is_none()) else { return };
    let due = match row.holder {
        Holder::Nobody | Holder::Bypassed(_) => true,
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
    let made = state.unused_key().filter(|_| world.has(Defect::KeyMadeAtTheFetch) && !row.called);
    let what = if called { "fetches the row, which says that a call has begun" } else { "fetches the row" };
    steps.step(NAMES[worker], what, 0, |after| {
        let holder = Holder::Leased(u8::try_from(worker).unwrap_or_default());
        let fetched = Row { holder, called, key: made.unwrap_or(row.key), ..row };
        after.row = Some(fetched);
        used(after, fetched);
        after.workers[worker] = Stage::Fetched { first: !row.called };
    });
}

/// Decides about a row that was fetched: with an answer it is completed, with a usable key the provider is called, and
/// otherwise the provider is asked.
pub(super) fn decide(steps: &mut Steps<'_>, worker: usize, first: bool) {
    let (world, state) = (steps.world, steps.state);
    let Some(row) = state.row.filter(|_| state.has_lease(worker) || world.has(Defect::CallsAfterItsLease)) else {
        return forget(steps, worker, "sees by its clock that its lease is over");
    };
    // As it was when it was fetched.
    let answer = row.answer && state.has_token(worker);
    if answer && !world.has(Defect::KeptAnswerIgnored) {
        return steps.step(NAMES[worker], "finds the answer in the row", 0, |after| {
            after.workers[worker] = Stage::Answered { key: row.key };
        });
    }
    snooze(steps, worker, first);
    let key = state.keys[usize::from(row.key)];
    // A first call looks at no clock: to a row that was not called, every key is new.
    let old = key.age == Age::Old && !first;
    let begun = world.at_most_once && !first && !world.has(Defect::BegunCallRepeated);
    if world.has(Defect::KeyChangedOnRetry) && !first || old && world.has(Defect::NewKeyWithoutAsking) {
        return replace_key(steps, worker);
    }
    let usable = world.has(Defect::OldKeyUsedAgain) || world.has(Defect::KeyUsedToItsEnd) && !key.forgotten;
    if (old && !usable) || begun {
        return reconcile(steps, worker, row);
    }
    steps.step(NAMES[worker], "begins a call", 0, |after| {
        after.recalled |= answer;
        after.workers[worker] = Stage::Sending { first, key: row.key };
    });
}

/// Snoozes the row without a call: too little is left of the lease, the worker ends, or it is too early to ask the provider.
fn snooze(steps: &mut Steps<'_>, worker: usize, first: bool) {
    if let Some(row) = steps.state.row.filter(|_| steps.state.has_token(worker)) {
        steps.setback(NAMES[worker], "snoozes the row, without a call", 0, |after| {
            after.row = Some(without_call(after, row, first));
            after.workers[worker] = Stage::Idle;
        });
    }
}

/// The row once it is certain that a call had no effect. `first`: none has begun under its key.
fn without_call(after: &mut State, row: Row, first: bool) -> Row {
    if first {
        after.keys[usize::from(row.key)].age = Age::Unused;
    }
    Row { called: row.called && !first, holder: Holder::Nobody, ..row }
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

/// Asks the provider what became of the call. There: complete. Not there: call again. Unknown: dead, unresolved.
fn reconcile(steps: &mut Steps<'_>, worker: usize, row: Row) {
    let (world, state) = (steps.world, steps.state);
    let unknown = state.left.unknown > 0;
    if world.reconciles && state.keys[usize::from(row.key)].charged {
        steps.step(NAMES[worker], "asks the provider, which has charged", 0, |after| {
            after.workers[worker] = Stage::Answered { key: row.key };
        });
    } else if world.reconciles {
        steps.step(NAMES[worker], "asks the provider, which has not charged", 0, |after| {
            after.workers[worker] = Stage::NotThere;
        });
    }
    if world.reconciles && unknown {
        steps.setback(NAMES[worker], "asks the provider, which cannot tell", 0, |after| after.left.unknown -= 1);
    }
    if world.reconciles && !unknown {
        return;
    }
    if state.has_token(worker) {
        steps.step(NAMES[worker], "cannot know what became of the call: the row is dead, unresolved", 0, |after| {
            after.row = Some(Row { dead: Some(Death::Unresolved), holder: Holder::Nobody, ..row });
            after.workers[worker] = Stage::Idle;
        });
    } else {
        forget(steps, worker, "finds that the row no longer has its token");
    }
}

/// The provider has said that it knows of no call under the key. The key stays, so that a backup has it, and is young again: its
/// life begins with the first effect under it.
pub(super) fn date(steps: &mut Steps<'_>, worker: usize) {
    if steps.world.has(Defect::KeyReplaced) {
        return replace_key(steps, worker);
    }
    let key = steps.state.row.map(|row| row.key);
    begin_anew(steps, worker, "dates the call anew", key);
}

/// Uses a new key instead.
fn replace_key(steps: &mut Steps<'_>, worker: usize) {
    let key = steps.state.unused_key();
    begin_anew(steps, worker, "uses a new key", key);
}

/// Writes the time of the first call under a key to the row, before that call, by the token. The lease begins anew.
fn begin_anew(steps: &mut Steps<'_>, worker: usize, what: &'static str, key: Option<u8>) {
    let row = steps.state.row.filter(|_| steps.state.has_token(worker));
    let Some((row, key)) = row.zip(key) else {
        return forget(steps, worker, "finds that the row no longer has its token");
    };
    steps.step(NAMES[worker], what, 0, |after| {
        let holder = Holder::Leased(u8::try_from(worker).unwrap_or_default());
        after.row = Some(Row { key, called: true, holder, ..row });
        after.keys[usize::from(key)].age = Age::Young;
        after.workers[worker] = Stage::Fetched { first: true };
    });
}

/// Keeps the answer. It is that of the row also if the lease was lost meanwhile, as long as the row has the same key: it is due,
/// dead or not, and the worker that has fetched it goes on.
fn keep(steps: &mut Steps<'_>, worker: usize, row: Row, key: u8) {
    let kept = Row { answer: true, called: true, holder: Holder::Nobody, ..row };
    if steps.state.has_token(worker) || row.key != key {
        return record(steps, worker, "keeps the answer", |_, _, _| kept);
    }
    let holder = match row.holder {
        Holder::Leased(other) => Holder::Bypassed(other),
        _ => Holder::Nobody,
    };
    steps.step(NAMES[worker], "keeps the answer, although it has lost the row", 0, |after| {
        after.row = Some(Row { dead: None, holder, ..kept });
        after.workers[worker] = Stage::Idle;
    });
}

/// Keeps the answer, and completes with it when the row is fetched again: the effect of the answer, the date of the claim and
/// the delete of the row by its token, in one commit. If the handler fails, its failure is recorded, and the answer stays.
pub(super) fn complete(steps: &mut Steps<'_>, worker: usize, key: u8) {
    let (world, state) = (steps.world, steps.state);
    if let Some(row) = state.row.filter(|row| !row.answer && !world.has(Defect::AnswerNotKept)) {
        return keep(steps, worker, row, key);
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

/// Records that a call had no effect: the row is due, and if that was its first call, none has begun. After the last attempt
/// it is dead, and can be replayed.
pub(super) fn not_done(steps: &mut Steps<'_>, worker: usize, first: bool) {
    let unused = first && !steps.world.has(Defect::BusyIsADoubt);
    let row = steps.state.row.filter(|_| steps.state.left.replays > 0 && steps.state.has_token(worker));
    if let Some(row) = row {
        steps.setback(NAMES[worker], "records that its call had no effect, and was the last attempt", 0, |after| {
            after.row = Some(Row { dead: Some(Death::Exhausted), ..without_call(after, row, unused) });
            after.workers[worker] = Stage::Idle;
        });
    }
    record(steps, worker, "records that its call had no effect", |_, after, row| without_call(after, row, unused));
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
