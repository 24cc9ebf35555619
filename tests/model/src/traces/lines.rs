//! The lines that must be a path of the model, and their processes.

use super::done::Done;
use super::line::Line;
use super::names::number;
use super::trace_step::TraceStep;

/// Lines that must be a path of the model.
pub(crate) struct Lines {
    /// Names them, for a report.
    pub(crate) name: String,
    /// In order of their begins.
    pub(crate) all: Vec<Line>,
    /// The process of each line, by its place among the names.
    pub(crate) process_of: Vec<usize>,
    /// The names of the processes.
    pub(crate) processes: Vec<String>,
}

impl Lines {
    pub(crate) fn new(name: String, all: Vec<Line>) -> Self {
        let mut processes = Vec::new();
        let process_of = all.iter().map(|line| number(&mut processes, &line.process)).collect();
        Self { name, all, process_of, processes }
    }

    /// Whether a process has ended, when these are done.
    pub(crate) fn is_dead(&self, process: usize, done: &Done) -> bool {
        let died = |line: &usize| self.all[*line].step == TraceStep::Died && self.process_of[*line] == process;
        (0..self.all.len()).find(died).is_some_and(|line| done.has(line))
    }
}
