//! The lines of a message as a path of the model of calls: each next place is behind one step of the model, which a line says or
//! which writes nothing.

use super::at::At;
use super::fits::{fits, is_late, note, too_early};
use super::lines::Call;
use super::table::{self, ARRIVES, FETCHES, OLD, PAUSED};
use crate::calls::row::NAMES;
use crate::calls::state::{Stage, State, WORKERS};
use crate::search::Model;
use crate::step::Step;
use crate::traces::done::Done;
use crate::traces::lines::Lines;
use crate::traces::path::Path;
use crate::traces::shown::Shown;
use crate::traces::trace_step::TraceStep;

impl Path for Call {
    type At = At;

    fn lines(&self) -> &Lines {
        &self.lines
    }

    fn first(&self) -> At {
        At::first(self)
    }

    fn done<'a>(&self, at: &'a At) -> &'a Done {
        &at.done
    }

    fn moves(&self, at: &At, reach: &mut dyn FnMut(At)) {
        moves(self, at, reach);
    }

    fn possible(&self, at: &At, report: &mut dyn FnMut(String)) {
        self.world.steps(&at.state, &mut |step, after| {
            let mut shown = table::shown(step.what).unwrap_or_default().iter();
            if !shown.any(|shown| shown.line().is_some()) {
                return;
            }
            let process = worker_of(at, step, &after).map(|worker| at.workers[worker]);
            report(match process {
                Some(Some(process)) => format!("{}: {}", self.lines.processes[process], step.what),
                Some(None) => format!("a process: {}", step.what),
                None => format!("{} {}", step.who, step.what),
            });
        });
    }

    fn hint(&self, at: &At, line: usize) -> Option<&'static str> {
        let of = &self.lines.all[line];
        if too_early(at, of).is_some() {
            return Some("The lease of another holder of the row was not over.");
        }
        let is_of = |worker: usize| at.workers[worker] == Some(self.lines.process_of[line]);
        let late = (0..WORKERS).any(|worker| is_of(worker) && is_late(at, of, Some(worker)));
        late.then_some("The lease of the row was over.")
    }
}

/// Calls `reach` with each next place.
fn moves(call: &Call, at: &At, reach: &mut dyn FnMut(At)) {
    for (line, of) in at.done.open(&call.lines.all) {
        let process = call.lines.process_of[line];
        match of.step {
            TraceStep::Stored if !at.is_stored => reach(at.clone().stored(call).behind(line)),
            TraceStep::Left if at.agrees(of) => reach(at.clone().behind(line)),
            TraceStep::Died if at.workers.contains(&Some(process)) => {
                reach(at.clone().killed(call, process).behind(line));
            }
            _ => {}
        }
    }
    call.world.steps(&at.state, &mut |step, after| {
        for shown in table::shown(step.what).unwrap_or_default() {
            match shown {
                Shown::Free if is_free(call, at, step, &after) => reach(at.with(after.clone())),
                Shown::Free => {}
                shown => lines(call, at, step, &after, *shown, reach),
            }
        }
    });
}

/// Whether a step writes nothing here, and may be needed.
fn is_free(call: &Call, at: &At, step: Step, after: &State) -> bool {
    let worker = worker_of(at, step, after);
    let is_undone = |steps: &[TraceStep]| at.done.undone(&call.lines.all).any(|(_, of)| steps.contains(&of.step));
    match step.what {
        FETCHES => at.state.row.is_some_and(|row| row.answer) && worker.is_some_and(|worker| at.is_next(worker)),
        PAUSED => is_undone(&[TraceStep::CallFetched, TraceStep::Started]),
        OLD => is_undone(&[TraceStep::Asked, TraceStep::Unresolved]),
        what if ARRIVES.contains(&what) => worker.is_none_or(|worker| !waits(at, worker)),
        _ => true,
    }
}

/// Whether a worker waits for the answer to its request.
fn waits(at: &At, worker: usize) -> bool {
    matches!(at.state.workers[worker], Stage::Calling { .. })
}

/// The places behind a step that a line says.
fn lines(call: &Call, at: &At, step: Step, after: &State, shown: Shown, reach: &mut dyn FnMut(At)) {
    let Some((seen, answered)) = shown.line() else { return };
    let worker = worker_of(at, step, after);
    let is_next = |worker: usize| step.what != FETCHES || at.is_next(worker);
    let waits = |worker: usize| !ARRIVES.contains(&step.what) || waits(at, worker);
    // One that is completed is not called for.
    let is_called = seen != TraceStep::CallFetched || at.state.row.is_some_and(|row| !row.answer);
    if !is_called || worker.is_some_and(|worker| !is_next(worker) || !waits(worker)) {
        return;
    }
    for (line, of) in at.done.open(&call.lines.all).filter(|(_, of)| of.step == seen) {
        if answered.is_some_and(|answered| of.end.is_some() != answered) {
            continue;
        }
        let Some(keys) = fits(call, at, line, (step, worker), after) else { continue };
        let bound = worker.map_or(Some(at.clone()), |worker| at.bound(call, worker, call.lines.process_of[line]));
        let Some(bound) = bound else { continue };
        let mut next = bound.with(after.clone());
        next.keys = keys;
        note(&mut next, of, worker);
        reach(next.behind(line));
    }
}

/// The worker that takes a step, or whose request arrives.
fn worker_of(at: &At, step: Step, after: &State) -> Option<usize> {
    let named = NAMES.iter().position(|name| *name == step.who);
    named.or_else(|| (0..WORKERS).find(|worker| at.state.flying[*worker] != after.flying[*worker]))
}
