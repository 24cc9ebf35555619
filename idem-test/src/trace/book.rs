//! The text of a trace.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use super::subject::Subject;

/// A trace, into which all processes of a trial write. Clones are the same trace.
#[derive(Debug, Clone, Default)]
pub struct Trace(Arc<Mutex<Book>>);

/// The records so far. A step has two: `>` when it begins, `<` when its answer is there.
#[derive(Debug, Default)]
pub(super) struct Book {
    text: String,
    /// Where they are written instead, at once, so that a process that is killed loses none.
    file: Option<File>,
    /// In front of numbers and names, so that those of several files differ.
    prefix: String,
    time: u64,
    steps: u64,
    processes: u64,
}

impl Trace {
    /// An empty trace.
    pub fn new() -> Self {
        Self::default()
    }

    /// A trace in a new file. `prefix` is in front of all names in it: files of one machine whose prefixes differ are
    /// one trace together, in any order.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn in_file(path: impl AsRef<Path>, prefix: impl Into<String>) -> io::Result<Self> {
        let book = Book { file: Some(File::create(path)?), prefix: prefix.into(), ..Book::default() };
        Ok(Self(Arc::new(Mutex::new(book))))
    }

    /// The records so far, unless they are in a file.
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
        format!("{}p{}", self.prefix, self.processes)
    }

    /// The time in nanoseconds, by the clock that all processes of the machine share. No two are equal here, and they are
    /// in the order of the calls.
    pub(super) fn now(&mut self) -> u64 {
        let since = UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        self.time = (self.time + 1).max(u64::try_from(since).unwrap_or(u64::MAX));
        self.time
    }

    /// Writes that a step began at this time, and returns its number.
    pub(super) fn begins(&mut self, begin: u64, process: &str, step: &str, of: &Subject, values: &str) -> u64 {
        self.steps += 1;
        let (number, Subject { key, message }) = (self.steps, of);
        let prefix = &self.prefix;
        let record = format!(">\t{prefix}{number}\t{begin}\t{process}\t{step}\t{message}\t{values}\t{key}\n");
        self.write(&record);
        number
    }

    /// Writes that the answer of a step is there.
    pub(super) fn ends(&mut self, number: u64) {
        let record = format!("<\t{}{number}\t{}\n", self.prefix.clone(), self.now());
        self.write(&record);
    }

    /// Writes that a step did nothing.
    pub(super) fn is_nothing(&mut self, number: u64) {
        let record = format!("<\t{}{number}\t{}\tnothing\n", self.prefix.clone(), self.now());
        self.write(&record);
    }

    fn write(&mut self, record: &str) {
        match &mut self.file {
            // A trace with a gap is refused.
            Some(file) => drop(file.write_all(record.as_bytes())),
            None => self.text.push_str(record),
        }
    }
}
