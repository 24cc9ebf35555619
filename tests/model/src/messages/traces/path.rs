//! The lines of a key, or of two, as a path of the model of messages.

use super::at::At;
use super::lease;
use super::moves::{moves, slot_of};
use super::table;
use super::world::World;
use crate::messages::slot::worker;
use crate::search::Model;
use crate::step::Step;
use crate::traces::done::Done;
use crate::traces::lines::Lines;
use crate::traces::path::Path;
use crate::traces::trace_step::TraceStep;

impl Path for World {
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

    fn possible(&self, at: &At, tell: &mut dyn FnMut(String)) {
        self.scenario.steps(&at.state, &mut |step, _| {
            let mut lines = table::shown(step.what).unwrap_or_default().iter().filter_map(|shown| shown.line());
            // A process may always end.
            if lines.any(|(seen, _)| seen != TraceStep::Died) {
                tell(told(self, at, step));
            }
        });
    }

    fn hint(&self, at: &At, line: usize) -> Option<&'static str> {
        let mut messages = 0..u8::try_from(self.messages.len()).unwrap_or_default();
        let is_leased = messages.any(|message| {
            self.message_of[line].is_none_or(|of| of == message)
                && lease::going_on(at, &self.lines.all[line], message).is_some()
        });
        is_leased.then_some("The lease of another holder of the row was not over.")
    }
}

/// A step in words, with the names of the trace.
fn told(world: &World, at: &At, step: Step) -> String {
    let process = slot_of(step).map(|slot| at.workers[worker(slot)]);
    let who = match process {
        Some(Some(process)) => format!("{}: ", world.lines.processes[process]),
        Some(None) => "a process: ".to_owned(),
        None => String::new(),
    };
    let message = world.messages.get(usize::from(step.message)).map_or("?", |(_, name)| name.as_str());
    format!("{who}{}", step.what.replace('_', message))
}
