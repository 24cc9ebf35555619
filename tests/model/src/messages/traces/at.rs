//! A place on the way through a trace: the state of the model, and the lines that are done.

use super::world::{LEFT, World};
use crate::messages::facts::Facts;
use crate::messages::slot::WORKERS;
use crate::messages::state::{DELIVERIES, MESSAGES, Place, State};
use crate::messages::task::Work;
use crate::search::Model;
use crate::traces::done::Done;
use crate::traces::line::Line;
use crate::traces::trace_step::TraceStep;

/// A place on the way.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct At {
    pub(super) state: State,
    /// The lines that are done.
    pub(super) done: Done,
    /// The process that each worker of the model stands for.
    pub(super) workers: [Option<usize>; WORKERS],
    /// The line by which each delivery of the model was received.
    pub(super) held: [Option<usize>; DELIVERIES],
    /// When the lease of each row ends, at the earliest.
    pub(super) leased: [u64; MESSAGES],
}

impl At {
    /// Before the first line: an empty database, and nothing at the broker.
    pub(super) fn first(world: &World) -> Self {
        let done = Done::none(&world.lines.all);
        let (state, leased) = (world.scenario.first(), [0; MESSAGES]);
        let mut first = Self { state, done, workers: [None; WORKERS], held: [None; DELIVERIES], leased };
        first.state.deliveries = [Place::Settled; DELIVERIES];
        first.forget();
        first
    }

    /// The same place with the next state, in which as many failures are left as before. No rule reads the history of a
    /// message whose handler may do anything.
    pub(super) fn with(&self, state: State) -> Self {
        let mut next = Self { state, ..self.clone() };
        next.forget();
        next
    }

    fn forget(&mut self) {
        self.state.left = LEFT;
        // Runs that end are counted down.
        self.state.facts = [Facts { open: 100, ..Facts::default() }; MESSAGES];
    }

    /// The same place behind a line.
    pub(super) fn behind(mut self, line: usize) -> Self {
        self.done.add(line);
        self
    }

    /// The lines that are not done, in order of their begins.
    pub(super) fn undone<'a>(&'a self, world: &'a World) -> impl Iterator<Item = (usize, &'a Line)> {
        self.done.undone(&world.lines.all)
    }

    /// The lines that may be next: no undone line ended before they began.
    pub(super) fn open<'a>(&'a self, world: &'a World) -> impl Iterator<Item = (usize, &'a Line)> {
        self.done.open(&world.lines.all)
    }

    /// A delivery of the model of this message that stands for none in the trace.
    pub(super) fn free(&self, world: &World, message: u8) -> Option<usize> {
        let count = world.scenario.deliveries();
        let works = |delivery: usize| {
            self.state.busy().any(|(_, task)| matches!(task.work, Work::Delivery(of) if usize::from(of) == delivery))
        };
        (0..count).find(|delivery| {
            let of = u8::try_from(*delivery).map(|delivery| world.scenario.message_of(delivery));
            of == Ok(message) && self.held[*delivery].is_none() && !works(*delivery)
        })
    }

    /// Whether the process stands for a worker, or holds a delivery.
    pub(super) fn knows(&self, world: &World, process: usize) -> bool {
        let holds = self.held.iter().flatten().any(|line| world.lines.process_of[*line] == process);
        self.workers.contains(&Some(process)) || holds
    }

    /// The workers if this one stands for the process from now on; `None` if it cannot.
    pub(super) fn bound(&self, world: &World, worker: usize, process: usize) -> Option<[Option<usize>; WORKERS]> {
        if let Some(bound) = self.workers[worker] {
            return (bound == process).then_some(self.workers);
        }
        let first = self.workers.iter().position(Option::is_none) == Some(worker);
        let elsewhere = self.workers.contains(&Some(process));
        if !first || elsewhere || world.lines.is_dead(process, &self.done) {
            return None;
        }
        let mut workers = self.workers;
        workers[worker] = Some(process);
        Some(workers)
    }

    /// Ends a process: its worker is free for the next one, and its deliveries go back.
    pub(super) fn bury(mut self, world: &World, process: usize) -> Self {
        for worker in &mut self.workers {
            if *worker == Some(process) {
                *worker = None;
            }
        }
        for delivery in 0..DELIVERIES {
            if self.held[delivery].is_some_and(|line| world.lines.process_of[line] == process) {
                self.held[delivery] = None;
                self.state.deliveries[delivery] = Place::Settled;
            }
        }
        self
    }

    /// Whether the rows and the claim are those of a line about the end.
    pub(super) fn agrees(&self, world: &World, line: usize) -> bool {
        let key = world.key_of[line];
        let of_key = |(place, _): &(usize, _)| world.messages.get(*place).is_some_and(|(of, _)| *of == key);
        let mut rows = self.state.rows.iter().enumerate().filter(of_key).filter_map(|(_, row)| *row);
        let row = match (rows.clone().count(), rows.any(|row| row.dead.is_none())) {
            (0, _) => "none",
            (_, true) => "scheduled",
            (_, false) => "dead",
        };
        let claim =
            self.state.claims[key].map_or("none", |claim| if claim.date.is_some() { "dated" } else { "undated" });
        let same = |said: &Option<String>, is: &str| said.as_deref().is_none_or(|said| said == is);
        let line = &world.lines.all[line];
        line.step == TraceStep::Left && same(&line.values.row, row) && same(&line.values.claim, claim)
    }
}
