//! The lines of a message as a path of the model of calls.

use super::at::At;
use super::fits::{is_late, too_early};
use super::lines::Call;
use super::moves::{moves, worker_of};
use super::table;
use crate::calls::state::WORKERS;
use crate::search::Model;
use crate::traces::done::Done;
use crate::traces::lines::Lines;
use crate::traces::path::Path;

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

    fn possible(&self, at: &At, tell: &mut dyn FnMut(String)) {
        self.world.steps(&at.state, &mut |step, after| {
            let mut shown = table::shown(step.what).unwrap_or_default().iter();
            if !shown.any(|shown| shown.line().is_some()) {
                return;
            }
            let process = worker_of(at, step, &after).map(|worker| at.workers[worker]);
            tell(match process {
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
