//! The lines of a message as a path of the model of relays.

use super::at::At;
use super::fits::{is_early, is_late};
use super::moves::{moves, relay_of};
use super::queue::Queue;
use super::table;
use crate::relay::state::RELAYS;
use crate::search::Model;
use crate::traces::done::Done;
use crate::traces::lines::Lines;
use crate::traces::path::Path;

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

    fn possible(&self, at: &At, tell: &mut dyn FnMut(String)) {
        self.world.steps(&at.state, &mut |step, after| {
            let mut shown = table::shown(step.what).unwrap_or_default().iter();
            if !shown.any(|shown| shown.line().is_some()) {
                return;
            }
            let message = self.messages.get(usize::from(step.message)).map_or("?", String::as_str);
            let process = relay_of(at, step, &after).and_then(|relay| at.relays[relay]);
            let who = process.map_or("a relay", |process| self.lines.processes[process].as_str());
            tell(format!("{who}: {}", step.what.replace('_', message)));
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
