//! Rows that may have ended their process: reserve, wait until the process is quiet, count the start, run; and judge.

use super::database::{Holder, Reason, Row};
use super::defect::Defect;
use super::names::{WORLD, slot_name};
use super::rows::{due, is_ordinary};
use super::scenario::MAX_STARTS;
use super::slot::{Slot, slots, worker};
use super::state::State;
use super::steps::Steps;
use super::task::{Isolation, Stage, Task, Work};

/// Reserves a suspect before the process goes quiet for it, so that no other process does. One per process.
pub(super) fn reserve(steps: &mut Steps<'_>, slot: Slot) {
    let (scenario, state) = (steps.world, steps.state);
    let suspect = |task: Task| matches!(task.work, Work::Row(_, isolation) if isolation != Isolation::Nothing);
    if others(state, slot).any(suspect) {
        return;
    }
    let suspects = due(state).filter(|(_, row)| !is_ordinary(scenario, row) && row.starts < MAX_STARTS);
    for (message, row) in suspects {
        let alone = row.starts >= 2 && !scenario.has(Defect::SuspectBesideDirect);
        let isolation = if alone { Isolation::Everything } else { Isolation::Rows };
        let early = u8::from(scenario.has(Defect::StartCountedAtReservation));
        steps.step(slot_name(slot), "reserves the row of _, a suspect", message, |after| {
            let reserved = Row { holder: Holder::Leased(slot), starts: row.starts + early, ..row };
            after.rows[usize::from(message)] = Some(reserved);
            let (work, stage) = (Work::Row(message, isolation), Stage::Reserved { known: row.starts });
            after.tasks[usize::from(slot)] = Some(Task { work, stage });
        });
    }
}

/// The steps of a slot that has reserved a suspect. `again`: the statement that counts its start had no answer. Then
/// the start may be counted: until it is counted again, and begun, or released, nothing that could end the process runs
/// beside it.
pub(super) fn steps(steps: &mut Steps<'_>, slot: Slot, (message, isolation): (u8, Isolation), known: u8, again: bool) {
    if !steps.state.has_token(message, slot) {
        return steps
            .step(slot_name(slot), "finds that its reservation of _ is gone", message, |after| after.end(slot));
    }
    if again || is_quiet(steps.state, slot, isolation) {
        count(steps, slot, message, known, again);
    }
    steps.setback(slot_name(slot), "releases the row of _, not run", message, |after| {
        after.change(message, |row| Row { holder: Holder::Nobody, starts: row.starts.min(known), ..row });
        if again {
            after.facts[usize::from(message)].open -= 1;
        }
        after.end(slot);
    });
}

/// Counts the start, now that the run begins: one committed statement that adds one, by the token, but to no more than the
/// known number and one, so that a repeat changes nothing. If a former holder has given its start back since, the
/// known number is too high.
fn count(steps: &mut Steps<'_>, slot: Slot, message: u8, known: u8, again: bool) {
    let scenario = steps.world;
    let count = |after: &mut State| {
        after.change(message, |row| match scenario.defect {
            Some(Defect::RepeatedCountAdds) => Row { starts: row.starts + 1, ..row },
            Some(Defect::StartsNotCounted | Defect::StartCountedAtReservation) => row,
            Some(Defect::CountIgnoresRefund) => Row { starts: known + 1, ..row },
            _ => Row { starts: known.min(row.starts) + 1, ..row },
        });
        after.facts[usize::from(message)].open += u8::from(!again);
    };
    steps.step(slot_name(slot), "counts the start of _, which begins next", message, |after| {
        count(after);
        after.advance(slot, Stage::Taken);
    });
    if steps.state.left.losses > 0 && !again {
        steps.setback(slot_name(slot), "counts the start of _, and gets no answer", message, |after| {
            count(after);
            after.left.losses -= 1;
            after.advance(slot, Stage::Counting { known, isolated: !scenario.has(Defect::IsolationEndsUnanswered) });
        });
    }
}

/// A row that has had all its starts is dead, once its last lease has been over for several leases: until then, each worker
/// that was only paused has come back, and has given its start back or begun.
pub(super) fn judge(steps: &mut Steps<'_>) {
    let early = steps.world.has(Defect::JudgedAtTheEndOfItsLease);
    for (message, _) in due(steps.state).filter(|(_, row)| row.starts >= MAX_STARTS) {
        let mut tasks = steps.state.busy();
        if early || !tasks.any(|(_, task)| matches!(task.work, Work::Row(of, _) if of == message)) {
            steps.step(WORLD, "the row of _ has had all its starts: it is dead, crashed", message, |after| {
                after.change(message, |row| Row { dead: Some(Reason::Crashed), holder: Holder::Nobody, ..row });
            });
        }
    }
}

/// Whether nothing runs beside the slot that its suspect could harm, or that could harm it.
fn is_quiet(state: &State, slot: Slot, isolation: Isolation) -> bool {
    !others(state, slot).any(|task| match task.work {
        Work::Row(..) => !matches!(task.stage, Stage::Reserved { .. } | Stage::Counting { .. }),
        Work::Delivery(_) => isolation == Isolation::Everything && task.stage == Stage::Running,
    })
}

/// The tasks of the slot's worker but its own.
fn others(state: &State, slot: Slot) -> impl Iterator<Item = Task> {
    slots(worker(slot)).filter(move |other| *other != usize::from(slot)).filter_map(|other| state.tasks[other])
}
