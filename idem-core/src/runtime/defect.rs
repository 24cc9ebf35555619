//! A panic in a task of the worker, which is a defect of idem, of a store or of an adapter, and ends the worker.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::OnceLock;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::panic_text::panic_text;

use super::draining::Draining;

/// The first panic among the tasks of a worker.
#[derive(Default)]
pub(crate) struct Defect {
    first: OnceLock<(&'static str, String)>,
    seen: CancellationToken,
}

impl Defect {
    fn report(&self, task: &'static str, panic: &(dyn Any + Send)) {
        let text = panic_text(panic);
        tracing::error!(task, panic = text, "a task of the worker panicked; the worker ends");
        // If others follow, the first one is the cause.
        let _ = self.first.set((task, text));
        self.seen.cancel();
    }

    /// Runs the work of a task. If it panics, the worker ends with an error that names the task, and this returns
    /// `None`: a task that ends silently, or restarts forever, would look like a healthy worker.
    pub(crate) async fn task<T>(&self, name: &'static str, work: impl Future<Output = T>) -> Option<T> {
        match AssertUnwindSafe(work).catch_unwind().await {
            Ok(done) => Some(done),
            Err(panic) => {
                self.report(name, panic.as_ref());
                None
            }
        }
    }

    /// Waits until a task has panicked. Cancel safe.
    pub(crate) async fn seen(&self) {
        self.seen.cancelled().await;
    }

    /// Returns the error with which the worker ends, if a task has panicked.
    pub(crate) fn error(&self) -> Option<Error> {
        let (task, text) = self.first.get()?;
        Some(Error::Panicked { task, text: text.clone() })
    }
}

/// Drains the worker if this is dropped by a panic, before anything declared earlier is dropped: the next delivery of
/// an ordering key must not start while the previous one is unsettled.
pub(crate) struct Unwinding<'a>(pub(crate) &'a Draining);

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.begin();
        }
    }
}
