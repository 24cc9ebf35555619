//! Whether a line says what a step of the model does.

use super::at::At;
use super::lines::Call;
use super::table::WORDS;
use crate::calls::state::{Holder, KEYS, Stage, State};
use crate::step::Step;
use crate::traces::line::Line;
use crate::traces::trace_step::TraceStep;

const MILLISECOND: u64 = 1_000_000;
/// The time that a clock of milliseconds cuts off.
const CUT: u64 = 2 * MILLISECOND;

/// The names of the keys behind a step that a line says; `None` if the line says something else. `worker`: whose step it is.
pub(super) fn fits(
    call: &Call,
    at: &At,
    line: usize,
    (step, worker): (Step, Option<usize>),
    after: &State,
) -> Option<[Option<usize>; KEYS]> {
    let of = &call.lines.all[line];
    let agrees = |said: Option<bool>, is: Option<bool>| said.is_none() || said == is;
    let word = WORDS.iter().find(|(sentence, _)| *sentence == step.what).map(|(_, word)| *word);
    let said = of.values.reply.as_deref().or(of.values.by.as_deref());
    let is = agrees(of.values.dead, after.row.map(|row| row.dead.is_some()))
        && agrees(of.values.unused, after.row.map(|row| !row.called))
        && of.values.of_row != Some(false)
        && (word.is_none() || said.is_none() || said == word)
        && too_early(at, of).is_none()
        && !is_late(at, of, worker);
    if !is {
        return None;
    }
    named(call, at, line, worker, after)
}

/// Whether a line fetches the row during the lease of another holder.
pub(super) fn too_early(at: &At, line: &Line) -> Option<u64> {
    let holder = at.state.row.map(|row| row.holder);
    let is_held = matches!(holder, Some(Holder::Leased(_) | Holder::Expired(_) | Holder::Ending(_)));
    let end = line.end.filter(|_| line.step == TraceStep::CallFetched && is_held)?;
    Some(at.leased).filter(|leased| end + CUT < *leased)
}

/// Whether a line sends a request after the lease of its worker.
pub(super) fn is_late(at: &At, line: &Line, worker: Option<usize>) -> bool {
    line.step == TraceStep::Sent && worker.is_some_and(|worker| at.until[worker] < line.begin)
}

/// Notes the lease that a line begins. It begins no earlier than the line does, and no later than it ends.
pub(super) fn note(next: &mut At, line: &Line, worker: Option<usize>) {
    let Some((lease, worker)) = line.values.lease.zip(worker) else { return };
    next.leased = line.begin + lease * MILLISECOND;
    next.until[worker] = line.end.map_or(u64::MAX, |end| end + lease * MILLISECOND);
}

/// The names of the keys behind a line; `None` if it names another key than that of the step.
fn named(call: &Call, at: &At, line: usize, worker: Option<usize>, after: &State) -> Option<[Option<usize>; KEYS]> {
    let (step, name, mut keys) = (call.lines.all[line].step, call.key_of[line], at.keys);
    let Some(number) = number(at, step, worker, after).map(usize::from) else { return Some(keys) };
    match step {
        // Its name is not known before it is used.
        TraceStep::Resolved => keys[number] = None,
        _ if name.is_none() || keys[number] == name => {}
        _ if keys[number].is_none() && !keys.contains(&name) => keys[number] = name,
        _ => return None,
    }
    Some(keys)
}

/// The number of the key that a step is about.
fn number(at: &At, step: TraceStep, worker: Option<usize>, after: &State) -> Option<u8> {
    let stage = worker.map(|worker| at.state.workers[worker]);
    match (step, stage) {
        (TraceStep::CallFetched | TraceStep::CallDated, _) => after.row.map(|row| row.key),
        (TraceStep::Resolved, _) => after.row.filter(|row| !row.answer).map(|row| row.key),
        (TraceStep::Asked, _) => at.state.row.map(|row| row.key),
        (TraceStep::Sent, Some(Stage::Sending { key, .. }))
        | (TraceStep::AnswerKept, Some(Stage::Answered { key })) => Some(key),
        (TraceStep::Answered | TraceStep::CallFailed, _) => worker.and_then(|worker| at.state.flying[worker]),
        _ => None,
    }
}
