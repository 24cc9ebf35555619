//! An error that ends the worker: a panic in one of its tasks, which is a defect of idem, of a store or of an adapter, or a
//! database that has changed under it.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::panic_text::panic_text;

/// The first such error of a worker.
#[derive(Default)]
pub(crate) struct Defect {
    first: Mutex<Option<Error>>,
    seen: CancellationToken,
}

impl Defect {
    /// Ends the worker with this error. If others follow, the first one is the cause.
    pub(crate) fn end(&self, error: Error) {
        self.first.lock().get_or_insert(error);
        self.seen.cancel();
    }

    /// Runs the work of a task. If it panics, the worker ends with an error that names the task, and this returns
    /// `None`: a task that ends silently, or restarts forever, would look like a healthy worker.
    pub(crate) async fn task<T>(&self, task: &'static str, work: impl Future<Output = T>) -> Option<T> {
        match AssertUnwindSafe(work).catch_unwind().await {
            Ok(done) => Some(done),
            Err(panic) => {
                let text = panic_text(panic.as_ref());
                tracing::error!(task, panic = text, "a task of the worker panicked; the worker ends");
                self.end(Error::Panicked { task, text });
                None
            }
        }
    }

    /// Waits until there is such an error. Cancel safe.
    pub(crate) async fn seen(&self) {
        self.seen.cancelled().await;
    }

    /// Takes the error with which the worker ends, if there is one.
    pub(crate) fn error(&self) -> Option<Error> {
        self.first.lock().take()
    }
}
