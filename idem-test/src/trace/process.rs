//! The steps of one process.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use super::book::Trace;
use super::subject::Subject;

/// The steps of one process. Clones are the same process.
#[derive(Debug, Clone)]
pub struct ProcessTrace(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    trace: Trace,
    name: String,
    is_dead: AtomicBool,
    deliveries: AtomicU64,
}

thread_local! {
    /// The process that this thread belongs to: each process of a trial has threads of its own.
    static HERE: RefCell<Option<ProcessTrace>> = const { RefCell::new(None) };
}

impl Trace {
    /// The steps of another process.
    pub(crate) fn process(&self) -> ProcessTrace {
        let (trace, name) = (self.clone(), self.book().name());
        let inner = Inner { trace, name, is_dead: AtomicBool::new(false), deliveries: AtomicU64::new(0) };
        ProcessTrace(Arc::new(inner))
    }
}

impl ProcessTrace {
    /// Makes this thread one of the process.
    pub(crate) fn enter(&self) {
        HERE.set(Some(self.clone()));
    }

    /// The process that this thread belongs to.
    pub(crate) fn here() -> Option<Self> {
        HERE.with_borrow(Clone::clone)
    }

    /// Returns while the process is alive. A task that is still there after its process has ended stops here, so that it
    /// takes no further step.
    pub(crate) async fn alive(&self) {
        if self.0.is_dead.load(SeqCst) {
            std::future::pending::<()>().await;
        }
    }

    /// Writes that the process ends now. The answers of its open steps come too late.
    pub(crate) fn end(&self) {
        let mut book = self.0.trace.book();
        if !self.0.is_dead.swap(true, SeqCst) {
            let now = book.now();
            book.begins(now, &self.0.name, "died", &Subject::any(), "");
        }
    }

    /// Writes that a delivery has arrived, and returns its number.
    pub(crate) fn received(&self, of: Subject, stores: bool) -> u64 {
        let number = self.0.deliveries.fetch_add(1, SeqCst) + 1;
        let stores = if stores { "yes" } else { "no" };
        self.begin("received", of, format!("delivery={number} stores={stores}")).done();
        number
    }

    /// Writes that a step begins.
    pub(crate) fn begin(&self, step: &'static str, of: Subject, values: String) -> Step {
        let mut book = self.0.trace.book();
        let begin = book.now();
        let number = self.is_alive().then(|| book.begins(begin, &self.0.name, step, &of, &values));
        drop(book);
        Step { process: self.clone(), number, begin, of, values }
    }

    /// Writes that a step begins whose keys only its answer tells.
    pub(crate) fn begin_any(&self, step: &'static str, values: String) -> Step {
        self.begin(step, Subject::any(), values)
    }

    /// Writes that a step was done, at some time since this one.
    pub(crate) fn was(&self, since: u64, step: &str, of: &Subject, values: &str) {
        let mut book = self.0.trace.book();
        if self.is_alive() {
            let number = book.begins(since, &self.0.name, step, of, values);
            book.ends(number);
        }
    }

    fn is_alive(&self) -> bool {
        !self.0.is_dead.load(SeqCst)
    }
}

/// A step that has begun. If it is dropped, it has no answer: it may have been done, or not.
#[derive(Debug)]
#[must_use = "a step without an answer may have been done, or not"]
pub(crate) struct Step {
    process: ProcessTrace,
    /// `None`: its process had ended before it began.
    number: Option<u64>,
    begin: u64,
    of: Subject,
    values: String,
}

impl Step {
    /// When it began.
    pub(crate) fn began(&self) -> u64 {
        self.begin
    }

    /// It was done.
    pub(crate) fn done(self) {
        let mut book = self.process.0.trace.book();
        if let Some(number) = self.number.filter(|_| self.process.is_alive()) {
            book.ends(number);
        }
    }

    /// It did nothing.
    pub(crate) fn nothing(self) {
        let mut book = self.process.0.trace.book();
        if let Some(number) = self.number.filter(|_| self.process.is_alive()) {
            book.is_nothing(number);
        }
    }

    /// It was another step that was done.
    pub(crate) fn done_as(self, step: &'static str) {
        self.also(step, self.of.clone(), self.values.clone());
        self.nothing();
    }

    /// It has done this as well, under a key that its answer told.
    pub(crate) fn also(&self, step: &'static str, of: Subject, values: String) {
        if self.number.is_some() {
            self.process.was(self.begin, step, &of, &values);
        }
    }
}
