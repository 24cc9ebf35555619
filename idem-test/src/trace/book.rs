//! The text of a trace.

use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::subject::Subject;

/// A trace, into which all processes of a trial write. Clones are the same trace.
#[derive(Debug, Clone, Default)]
pub struct Trace(Arc<Mutex<Book>>);

/// The records so far. A step has two: `>` when it begins, `<` when its answer is there.
#[derive(Debug, Default)]
pub(super) struct Book {
    text: String,
    began: Option<Instant>,
    time: u64,
    steps: u64,
    processes: u64,
}

impl Trace {
    /// An empty trace.
    pub fn new() -> Self {
        Self::default()
    }

    /// The records so far.
    pub fn text(&self) -> String {
        self.book().text.clone()
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    /// The name of another process.
    pub(super) fn name(&mut self) -> String {
        self.processes += 1;
        format!("p{}", self.processes)
    }

    /// The time, in nanoseconds since the trace began. No two are equal, and they are in the order of the calls.
    pub(super) fn now(&mut self) -> u64 {
        let elapsed = self.began.get_or_insert_with(Instant::now).elapsed().as_nanos();
        self.time = (self.time + 1).max(u64::try_from(elapsed).unwrap_or(u64::MAX));
        self.time
    }

    /// Writes that a step began at this time, and returns its number.
    pub(super) fn begins(&mut self, begin: u64, process: &str, step: &str, of: &Subject, values: &str) -> u64 {
        self.steps += 1;
        let (number, Subject { key, message }) = (self.steps, of);
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, ">\t{number}\t{begin}\t{process}\t{step}\t{message}\t{values}\t{key}");
        number
    }

    /// Writes that the answer of a step is there.
    pub(super) fn ends(&mut self, number: u64) {
        let now = self.now();
        let _ = writeln!(self.text, "<\t{number}\t{now}");
    }

    /// Writes that a step did nothing.
    pub(super) fn is_nothing(&mut self, number: u64) {
        let now = self.now();
        let _ = writeln!(self.text, "<\t{number}\t{now}\tnothing");
    }
}
