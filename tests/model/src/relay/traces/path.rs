//! The lines of a message as a path of the model of relays: each next place is behind one step of the model, which a line says
//! or which writes nothing.

use super::at::At;
use super::fits::{fits, is_early, is_late, note};
use super::queue::Queue;
use super::table::{self, ARRIVES, PAUSED, TAKES};
use crate::relay::lease::NAMES;
use crate::relay::state::{Known, RELAYS, State};
use crate::search::Model;
use crate::step::Step;
use crate::traces::done::Done;
use crate::traces::lines::Lines;
use crate::traces::path::Path;
use crate::traces::shown::Shown;
use crate::traces::trace_step::TraceStep;

impl Path for Queue {
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
            let message = self.messages.get(usize::from(step.message)).map_or("?", String::as_str);
            let process = relay_of(at, step, &after).and_then(|relay| at.relays[relay]);
            let who = process.map_or("a relay", |process| self.lines.processes[process].as_str());
            report(format!("{who}: {}", step.what.replace('_', message)));
        });
    }

    fn hint(&self, at: &At, line: usize) -> Option<&'static str> {
        let of = &self.lines.all[line];
        if is_early(at, of) {
            return Some("The lease of another relay was not over.");
        }
        let is_of = |relay: usize| at.relays[relay] == Some(self.lines.process_of[line]);
        let late = (0..RELAYS).any(|relay| is_of(relay) && is_late(at, of, Some(relay)));
        late.then_some("The lease was over.")
    }
}

/// Calls `reach` with each next place.
fn moves(queue: &Queue, at: &At, reach: &mut dyn FnMut(At)) {
    for (line, of) in at.done.open(&queue.lines.all) {
        let process = queue.lines.process_of[line];
        match of.step {
            // A lease that goes on is no state of the model.
            TraceStep::LeaseTaken | TraceStep::LeaseRenewed => {
                if let Some(relay) = at.leases(process) {
                    let mut next = at.clone();
                    note(&mut next, of, Some(relay));
                    reach(next.behind(line));
                }
            }
            TraceStep::Read => {
                let read = queue.message_of[line].and_then(|message| at.reads(process, message));
                read.into_iter().for_each(|next| reach(next.behind(line)));
            }
            TraceStep::Died if at.relays.contains(&Some(process)) => {
                reach(at.clone().killed(queue, process).behind(line));
            }
            _ => {}
        }
    }
    queue.world.steps(&at.state, &mut |step, after| {
        for shown in table::shown(step.what).unwrap_or_default() {
            match shown {
                Shown::Free if is_free(queue, at, step, &after) => reach(at.with(after.clone())),
                Shown::Free => {}
                shown => lines(queue, at, step, &after, *shown, reach),
            }
        }
    });
}

/// Whether a step writes nothing here, and may be needed.
fn is_free(queue: &Queue, at: &At, step: Step, after: &State) -> bool {
    match step.what {
        PAUSED => at.done.undone(&queue.lines.all).any(|(_, of)| of.step == TraceStep::LeaseTaken),
        what if ARRIVES.contains(&what) => relay_of(at, step, after).is_none_or(|relay| !waits(at, relay, step)),
        _ => true,
    }
}

/// Whether a relay waits for the answer to the message of a step.
fn waits(at: &At, relay: usize, step: Step) -> bool {
    at.state.relays[relay].known[usize::from(step.message)] == Known::Sent
}

/// The places behind a step that a line says.
fn lines(queue: &Queue, at: &At, step: Step, after: &State, shown: Shown, reach: &mut dyn FnMut(At)) {
    let Some((seen, _)) = shown.line() else { return };
    let Some(relay) = relay_of(at, step, after) else { return };
    let is_next = step.what != TAKES || at.is_next(relay);
    if !is_next || ARRIVES.contains(&step.what) && !waits(at, relay, step) {
        return;
    }
    for (line, of) in at.done.open(&queue.lines.all).filter(|(_, of)| of.step == seen) {
        if !fits(queue, at, line, (step, Some(relay)), after) {
            continue;
        }
        let Some(bound) = at.bound(queue, relay, queue.lines.process_of[line]) else { continue };
        let mut next = bound.with(after.clone());
        note(&mut next, of, Some(relay));
        reach(next.behind(line));
    }
}

/// The relay that takes a step, or whose message arrives.
fn relay_of(at: &At, step: Step, after: &State) -> Option<usize> {
    let named = NAMES.iter().position(|name| *name == step.who);
    named.or_else(|| (0..RELAYS).find(|relay| at.state.flying[*relay] != after.flying[*relay]))
}
