//! The steps of a process, each with an answer or without one; its end at any point; the end of a lease.

use super::defect::Defect;
use super::state::{Place, Record, Stage, State, Status, Steps};
use super::world::{Handler, MAX_ATTEMPTS, MAX_STARTS, World};

const WHO: [&str; 2] = ["process 1", "process 2"];

/// The steps of one delivery.
pub(super) fn steps(steps: &mut Steps<'_>, delivery: usize) {
    let (world, who) = (steps.world, WHO[delivery]);
    let (stage, failed) = match steps.state.deliveries[delivery] {
        Place::Settled => return,
        Place::Queued => {
            steps.step(who, "receives _", 0, |after| after.deliveries[delivery] = Place::Tried(Stage::Acquire, 0));
            return;
        }
        Place::Tried(stage, failed) => (stage, failed),
    };
    match stage {
        // Somebody else has the lease: the delivery waits, which is no progress.
        Stage::Acquire if is_busy(steps.state, delivery) => {}
        Stage::Acquire => sent(steps, delivery, "acquires _", |after| acquire(world, after, delivery, failed)),
        Stage::Run => run(steps, delivery, failed),
        Stage::Apply => steps.step(who, "applies the writes of _", 0, |after| {
            after.effects = (after.effects + 1).min(2);
            after.deliveries[delivery] = Place::Tried(Stage::Complete, failed);
        }),
        Stage::Complete => sent(steps, delivery, "completes _", |after| complete(world, after, delivery, failed)),
        Stage::Bury => sent(steps, delivery, "buries _", |after| bury(world, after, delivery)),
        Stage::Ack => {
            steps.step(who, "acks _", 0, |after| {
                after.forget(delivery);
                after.deliveries[delivery] = Place::Settled;
            });
            if steps.state.losses > 0 {
                steps.setback(who, "acks _, and the ack is lost", 0, |after| {
                    after.losses -= 1;
                    after.crash(delivery);
                });
            }
        }
    }
    if matches!(stage, Stage::Acquire | Stage::Run) {
        steps.setback(who, "drains, and releases _", 0, |after| release(world, after, delivery));
    }
    if steps.state.kills > 0 {
        steps.setback(who, "is killed", 0, |after| {
            after.kills -= 1;
            after.crash(delivery);
        });
    }
}

/// A step that the store does, and whose answer may be lost: then it is sent again.
fn sent(steps: &mut Steps<'_>, delivery: usize, what: &'static str, change: impl Fn(&mut State) -> Place) {
    steps.step(WHO[delivery], what, 0, |after| {
        let next = change(after);
        after.deliveries[delivery] = next;
    });
    if steps.state.losses > 0 {
        steps.setback(WHO[delivery], "loses an answer about _", 0, |after| {
            after.losses -= 1;
            change(after);
        });
    }
}

fn is_busy(state: &State, delivery: usize) -> bool {
    let running = Status::Running { is_over: false };
    state.record.is_some_and(|record| record.status == running && record.owner != Some(delivery))
}

fn acquire(world: &World, state: &mut State, delivery: usize, failed: u8) -> Place {
    let running = Status::Running { is_over: false };
    let mut record =
        state.record.unwrap_or(Record { status: Status::Running { is_over: true }, owner: None, starts: 0 });
    match record.status {
        Status::Done | Status::Dead => return Place::Tried(Stage::Ack, failed),
        Status::Half if !world.has(Defect::HalfRunsAgain) => {
            state.record = Some(Record { owner: Some(delivery), ..record });
            return Place::Tried(Stage::Bury, failed);
        }
        Status::Running { .. } | Status::Half => {}
    }
    let is_repeat = record.owner == Some(delivery) && record.starts > 0;
    if !is_repeat || world.has(Defect::EachAnswerIsAStart) {
        record.starts += 1;
    }
    let starts = record.starts;
    let status = if world.has(Defect::DoneAtTheStart) { Status::Done } else { running };
    state.record = Some(Record { status, owner: Some(delivery), starts: starts.min(MAX_STARTS + 1) });
    Place::Tried(if starts > MAX_STARTS { Stage::Bury } else { Stage::Run }, failed)
}

fn run(steps: &mut Steps<'_>, delivery: usize, failed: u8) {
    let (world, who) = (steps.world, WHO[delivery]);
    if matches!(world.handler, Handler::Succeeds | Handler::MayFail | Handler::HalfApplied) {
        let next = match () {
            () if world.has(Defect::AckedBeforeDone) => Stage::Ack,
            () if world.has(Defect::EffectBeforeRecord) => Stage::Apply,
            () => Stage::Complete,
        };
        steps.step(who, "runs the handler of _", 0, |after| after.deliveries[delivery] = Place::Tried(next, failed));
    }
    match world.handler {
        Handler::MayFail => steps.step(who, "runs the handler of _, which fails", 0, |after| {
            let next = if failed + 1 < MAX_ATTEMPTS { Stage::Acquire } else { Stage::Bury };
            after.deliveries[delivery] = Place::Tried(next, failed + 1);
        }),
        Handler::Kills => steps.step(who, "runs the handler of _, which ends the process", 0, |after| {
            after.killed = (after.killed + 1).min(MAX_STARTS + 1);
            after.crash(delivery);
        }),
        Handler::Succeeds | Handler::HalfApplied => {}
    }
}

fn complete(world: &World, state: &mut State, delivery: usize, failed: u8) -> Place {
    let (lost, any) = (Place::Tried(Stage::Acquire, 0), world.has(Defect::AnyTokenCompletes));
    let Some(record) = state.record.filter(|record| any || record.owner == Some(delivery)) else { return lost };
    match record.status {
        Status::Done if !any => return Place::Tried(Stage::Ack, failed),
        Status::Half => return Place::Tried(Stage::Bury, failed),
        Status::Dead if !any => return lost,
        Status::Running { .. } | Status::Done | Status::Dead => {}
    }
    if !world.has(Defect::EffectBeforeRecord) {
        state.effects = (state.effects + 1).min(2);
    }
    let is_half = world.handler == Handler::HalfApplied && !world.has(Defect::HalfIsDone);
    let status = if is_half { Status::Half } else { Status::Done };
    state.record = Some(Record { status, ..record });
    Place::Tried(if is_half { Stage::Bury } else { Stage::Ack }, failed)
}

fn bury(world: &World, state: &mut State, delivery: usize) -> Place {
    let any = world.has(Defect::AnyTokenBuries);
    let Some(record) = state.record.filter(|record| any || record.owner == Some(delivery)) else {
        return Place::Tried(Stage::Acquire, 0);
    };
    if record.status == Status::Done && !any {
        return Place::Tried(Stage::Acquire, 0);
    }
    state.record = Some(Record { status: Status::Dead, ..record });
    Place::Tried(Stage::Ack, 0)
}

fn release(world: &World, state: &mut State, delivery: usize) {
    let ours = |record: &&Record| record.owner == Some(delivery) && matches!(record.status, Status::Running { .. });
    if let Some(record) = state.record.as_ref().filter(ours).copied() {
        let starts = if world.has(Defect::ReleaseKeepsStart) { record.starts } else { record.starts - 1 };
        let released = Record { status: Status::Running { is_over: true }, owner: None, starts };
        state.record = Some(released).filter(|record| record.starts > 0);
    }
    state.crash(delivery);
}

/// A lease ends: after its process has, or because that hangs.
pub(super) fn lease_ends(steps: &mut Steps<'_>) {
    let Some(record) = steps.state.record else { return };
    if record.status != (Status::Running { is_over: false }) {
        return;
    }
    let ended = Record { status: Status::Running { is_over: true }, ..record };
    let after = Some(ended).filter(|_| !steps.world.has(Defect::RecordEndsWithLease));
    match record.owner {
        None if steps.world.has(Defect::LeaseStays) => {}
        None => steps.step("", "the lease of _ ends", 0, |state| state.record = after),
        Some(_) if steps.state.hangs > 0 => {
            steps.setback("", "the lease of _ ends while its process hangs", 0, |state| {
                state.hangs -= 1;
                state.record = after;
            });
        }
        Some(_) => {}
    }
}
