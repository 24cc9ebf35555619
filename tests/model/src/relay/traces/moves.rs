//! The next places: one step of the model each, which a line says or which writes nothing.

use super::at::At;
use super::fits::{fits, note};
use super::queue::Queue;
use super::table::{self, ARRIVES, PAUSED, TAKES};
use crate::relay::lease::NAMES;
use crate::relay::state::{Known, RELAYS, State};
use crate::search::Model;
use crate::step::Step;
use crate::traces::shown::Shown;
use crate::traces::trace_step::TraceStep;

/// Calls `reach` with each next place.
pub(super) fn moves(queue: &Queue, at: &At, reach: &mut dyn FnMut(At)) {
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
pub(super) fn relay_of(at: &At, step: Step, after: &State) -> Option<usize> {
    let named = NAMES.iter().position(|name| *name == step.who);
    named.or_else(|| (0..RELAYS).find(|relay| at.state.flying[*relay] != after.flying[*relay]))
}
