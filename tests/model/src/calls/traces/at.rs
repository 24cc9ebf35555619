//! A place on the way through the lines of a message: the state of the model, and the lines that are done.

use super::lines::{Call, LEFT};
use super::table::KILLED;
use crate::calls::row::NAMES;
use crate::calls::state::{KEYS, Stage, State, WORKERS};
use crate::search::Model;
use crate::traces::done::Done;
use crate::traces::line::Line;

/// A place on the way.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct At {
    pub(super) state: State,
    pub(super) done: Done,
    /// Whether the message was stored.
    pub(super) is_stored: bool,
    /// The process that each worker of the model stands for, while it works.
    pub(super) workers: [Option<usize>; WORKERS],
    /// The name of each key of the model.
    pub(super) keys: [Option<usize>; KEYS],
    /// Until when each worker may send, at the latest.
    pub(super) until: [u64; WORKERS],
    /// When the lease of the row ends, at the earliest.
    pub(super) leased: u64,
}

impl At {
    /// Before the first line.
    pub(super) fn first(call: &Call) -> Self {
        let mut first = Self {
            state: call.world.first(),
            done: Done::none(&call.lines.all),
            is_stored: call.is_stored,
            workers: [None; WORKERS],
            keys: [None; KEYS],
            until: [u64::MAX; WORKERS],
            leased: 0,
        };
        if !first.is_stored {
            first.state.row = None;
        }
        first.forget();
        first
    }

    /// The same place behind a line.
    pub(super) fn behind(mut self, line: usize) -> Self {
        self.done.add(line);
        self
    }

    /// The same place once the message is stored.
    pub(super) fn stored(mut self, call: &Call) -> Self {
        (self.is_stored, self.state.row) = (true, call.world.first().row);
        self
    }

    /// The same place with the next state.
    pub(super) fn with(&self, state: State) -> Self {
        let mut next = Self { state, ..self.clone() };
        next.forget();
        next
    }

    /// As many failures are left as before, what only properties read is forgotten, and a worker without work stands for no
    /// process.
    fn forget(&mut self) {
        self.state.left = LEFT;
        (self.state.charges, self.state.completed, self.state.recalled) = (0, 0, false);
        for worker in 0..WORKERS {
            if self.state.workers[worker] == Stage::Idle {
                self.workers[worker] = None;
            }
        }
    }

    /// The same place if this worker stands for the process; `None` if it cannot.
    pub(super) fn bound(&self, call: &Call, worker: usize, process: usize) -> Option<Self> {
        let is_dead = call.lines.is_dead(process, &self.done);
        if is_dead || self.workers[worker].is_some_and(|bound| bound != process) {
            return None;
        }
        let mut bound = self.clone();
        bound.workers[worker] = Some(process);
        Some(bound)
    }

    /// The same place once a process has ended, with all its work.
    pub(super) fn killed(mut self, call: &Call, process: usize) -> Self {
        for (worker, name) in NAMES.into_iter().enumerate() {
            if self.workers[worker] != Some(process) {
                continue;
            }
            let mut killed = None;
            call.world.steps(&self.state, &mut |step, after| {
                if step.what == KILLED && step.who == name {
                    killed = Some(after);
                }
            });
            self = killed.map_or(self.clone(), |killed| self.with(killed));
        }
        self
    }

    /// Whether this worker is the one that fetches the row: both are equal while they have no work.
    pub(super) fn is_next(&self, worker: usize) -> bool {
        let is_free = |worker: usize| self.state.workers[worker] == Stage::Idle && self.state.flying[worker].is_none();
        (0..WORKERS).find(|worker| is_free(*worker)) == Some(worker)
    }

    /// Whether the row is that of a line about the end.
    pub(super) fn agrees(&self, line: &Line) -> bool {
        let row = match self.state.row {
            None => "none",
            Some(row) if row.dead.is_some() => "dead",
            Some(_) => "scheduled",
        };
        line.values.row.as_deref().is_none_or(|said| said == row)
    }
}
