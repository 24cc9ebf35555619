//! The isolation of rows that may have ended their process. Each process has two locks: work on rows holds that of rows,
//! deliveries hold that of direct work, shared, until their outcome is written or their database is away. A row with
//! one start, or with two lost connections, takes the lock of rows exclusively, and one with two starts both: the lock
//! first, then the fetch, which counts the start. And rows that have had all their starts are dead.

use super::database::{Holder, Reason, Row};
use super::defect::Defect;
use super::names::{WORLD, slot_name};
use super::rows::{due, is_ordinary};
use super::scenario::{MAX_STARTS, Scenario};
use super::slot::{Slot, slots, worker};
use super::state::{State, Steps};
use super::task::{Isolation, Lock, Stage, Task, Work};

/// Such a row is due. If its process has the locks at once, it fetches the row. Otherwise it waits for them, and nothing
/// starts meanwhile that has to be quiet. One of them waits, or has the locks, at a time.
pub(super) fn begin(steps: &mut Steps<'_>, slot: Slot) {
    let (scenario, state) = (steps.world, steps.state);
    if others(state, slot).any(|task| task.isolates() != Isolation::Nothing) {
        return;
    }
    for isolation in [Isolation::Rows, Isolation::Everything] {
        let mut needing = orphans(scenario, state, isolation).filter(|(_, _, needs)| *needs == isolation);
        let Some((message, ..)) = needing.next() else { continue };
        if has_lock(scenario, state, slot, isolation) {
            fetch(steps, slot, isolation);
            continue;
        }
        let what = "waits for the lock that the row of _ needs, which may have ended its process";
        steps.step(slot_name(slot), what, message, |after| {
            let (work, stage) = (Work::Turn(isolation), Stage::Waiting);
            after.tasks[usize::from(slot)] = Some(Task { work, stage, lock: Lock::Free });
        });
    }
}

/// The steps of a slot that waits for the locks. It gives up when a look finds that no row is due any more, at a drain, in an
/// outage, and when it has waited for too long.
pub(super) fn wait(steps: &mut Steps<'_>, slot: Slot, isolation: Isolation) {
    let (scenario, state) = (steps.world, steps.state);
    if orphans(scenario, state, isolation).next().is_none() {
        if !scenario.has(Defect::WaitsForNothing) {
            steps.step(slot_name(slot), "sees that no row is due that needs the lock", 0, |after| after.end(slot));
        }
        return;
    }
    steps.setback(slot_name(slot), "waits no longer for the lock", 0, |after| after.end(slot));
    if has_lock(scenario, state, slot, isolation) {
        fetch(steps, slot, isolation);
    }
}

/// Fetches a row under the locks: one committed statement counts its start.
fn fetch(steps: &mut Steps<'_>, slot: Slot, isolation: Isolation) {
    let (scenario, state) = (steps.world, steps.state);
    for (message, row, _) in orphans(scenario, state, isolation) {
        let counted = row.starts + u8::from(!scenario.has(Defect::StartsNotCounted));
        let fetch = |after: &mut State, lock| {
            after.change(message, |row| Row { starts: counted, holder: Holder::Leased(slot), ..row });
            after.facts[usize::from(message)].open += 1;
            let (work, stage) = (Work::Row(message, isolation), Stage::Fetched);
            after.tasks[usize::from(slot)] = Some(Task { work, stage, lock });
        };
        let lock = if scenario.has(Defect::LockAfterFetch) { Lock::Free } else { Lock::Held };
        steps.step(slot_name(slot), "has the lock, and fetches the row of _", message, |after| fetch(after, lock));
        if scenario.has(Defect::UnansweredFetchUnlocked) && state.left.losses > 0 {
            let what = "has the lock, fetches the row of _, and gets no answer";
            steps.setback(slot_name(slot), what, message, |after| {
                after.left.losses -= 1;
                fetch(after, Lock::Free);
            });
        }
    }
}

/// Whether the slot has these locks at once, or a defect does without.
fn has_lock(scenario: &Scenario, state: &State, slot: Slot, isolation: Isolation) -> bool {
    let without = scenario.has(Defect::NoLock) || scenario.has(Defect::LockAfterFetch);
    without || is_quiet(scenario, state, slot, isolation)
}

/// A fetched row whose lock was lost in an outage takes it again, if that is possible at once. Otherwise it is released.
pub(super) fn lock_again(steps: &mut Steps<'_>, slot: Slot, message: u8) {
    let (scenario, state) = (steps.world, steps.state);
    let Some(Task { work: Work::Row(_, isolation), lock: Lock::Free | Lock::Lost, .. }) =
        state.tasks[usize::from(slot)]
    else {
        return;
    };
    let is_free = match isolation {
        Isolation::Nothing => may_fetch(scenario, state, slot),
        _ => {
            !others(state, slot).any(|task| task.isolates() != Isolation::Nothing)
                && is_quiet(scenario, state, slot, isolation)
        }
    };
    if is_free {
        steps.step(slot_name(slot), "takes the lock of the row of _ again", message, |after| {
            if let Some(task) = &mut after.tasks[usize::from(slot)] {
                task.lock = Lock::Held;
            }
        });
    }
}

/// The rows that need these locks or fewer, with what they need.
fn orphans(scenario: &Scenario, state: &State, isolation: Isolation) -> impl Iterator<Item = (u8, Row, Isolation)> {
    let rows_only = scenario.has(Defect::OrphanBesideDirect);
    due(scenario, state)
        .filter(|(_, row)| !is_ordinary(scenario, row) && row.starts < MAX_STARTS)
        .map(move |(message, row)| {
            let both = row.starts >= 2 && !rows_only;
            (message, row, if both { Isolation::Everything } else { Isolation::Rows })
        })
        .filter(move |(_, _, needs)| *needs <= isolation)
}

/// Whether the slot holds its lock, so that its row may begin.
pub(super) fn holds(steps: &Steps<'_>, slot: Slot) -> bool {
    steps.state.tasks[usize::from(slot)].is_some_and(|task| task.lock == Lock::Held)
}

/// Whether rows may be fetched that need nothing to be quiet: nobody has or wants the lock of rows exclusively.
pub(super) fn may_fetch(scenario: &Scenario, state: &State, slot: Slot) -> bool {
    scenario.has(Defect::NoLock) || !others(state, slot).any(|task| isolates(scenario, task) != Isolation::Nothing)
}

/// Whether a delivery may not begin: somebody has or wants the lock of direct work exclusively.
pub(super) fn is_kept_out(scenario: &Scenario, state: &State, slot: Slot) -> bool {
    !scenario.has(Defect::NoLock) && others(state, slot).any(|task| isolates(scenario, task) == Isolation::Everything)
}

fn isolates(scenario: &Scenario, task: Task) -> Isolation {
    if ends_early(scenario, task) { Isolation::Nothing } else { task.isolates() }
}

/// Whether a defect has ended the lock of a task before its outcome is written.
fn ends_early(scenario: &Scenario, task: Task) -> bool {
    match task.stage {
        Stage::Failed | Stage::Broke => scenario.has(Defect::LockEndsWithTheRun),
        Stage::Running => scenario.has(Defect::SharedLockEndsAtTheBegin) && task.isolates() == Isolation::Nothing,
        _ => false,
    }
}

/// Whether nothing holds the locks that the slot waits for.
fn is_quiet(scenario: &Scenario, state: &State, slot: Slot, isolation: Isolation) -> bool {
    !others(state, slot).any(|task| match task.work {
        _ if ends_early(scenario, task) => false,
        Work::Row(..) => task.lock == Lock::Held,
        Work::Turn(_) => false,
        Work::Delivery(_) => {
            let parked = task.stage == Stage::WaitsForRow && scenario.has(Defect::ParkedHoldsLock);
            isolation == Isolation::Everything && (task.lock == Lock::Held || parked)
        }
    })
}

/// The handler of a slot ends its process. Notes the rows that this charges although one was to be isolated from the
/// other. What has lost its lock in an outage is charged as a limit: everything would stand still for that outage.
pub(super) fn charge(state: &State, after: &mut State, slot: Slot) {
    let Some(killer) = state.tasks[usize::from(slot)] else { return };
    for (other, task) in state.busy().filter(|(other, _)| *other != slot && worker(*other) == worker(slot)) {
        let Work::Row(message, needs) = task.work else { continue };
        let apart = match killer.work {
            Work::Row(_, isolation) => isolation.max(needs) != Isolation::Nothing,
            _ => needs == Isolation::Everything,
        };
        if apart && task.lock != Lock::Lost && killer.lock != Lock::Lost && state.has_token(message, other) {
            after.facts[usize::from(message)].charged = true;
        }
    }
}

/// A row that has had all its starts is dead, once its last lease has been over for several leases: until then, each worker
/// that was only paused has come back, and has refunded its start or begun.
pub(super) fn judge(steps: &mut Steps<'_>) {
    let early = steps.world.has(Defect::JudgedAtTheEndOfItsLease);
    for (message, _) in due(steps.world, steps.state).filter(|(_, row)| row.starts >= MAX_STARTS) {
        let mut tasks = steps.state.busy();
        if early || !tasks.any(|(_, task)| matches!(task.work, Work::Row(of, _) if of == message)) {
            steps.step(WORLD, "the row of _ has had all its starts: it is dead, crashed", message, |after| {
                after.change(message, |row| Row { dead: Some(Reason::Crashed), holder: Holder::Nobody, ..row });
            });
        }
    }
}

/// The tasks of the slot's worker but its own.
fn others(state: &State, slot: Slot) -> impl Iterator<Item = Task> {
    slots(worker(slot)).filter(move |other| *other != usize::from(slot)).filter_map(|other| state.tasks[other])
}
