//! Writes that are repeated until the database has answered.

use tokio_util::sync::CancellationToken;

use crate::BoxError;
use crate::store::StoreError;

use super::outage::Outage;
use super::waits::hold_wait;

impl Outage {
    /// Repeats a write until the database has answered it. Returns `None` if `stop` comes first.
    pub(crate) async fn insist<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        stop: &CancellationToken,
        write: impl Fn() -> F,
    ) -> Option<T> {
        for tries in 0.. {
            match write().await {
                Ok(answer) => return Some(answer),
                Err(fault) => self.try_again(&fault),
            }
            tokio::select! {
                () = self.pause(tries) => {}
                () = stop.cancelled() => return None,
            }
        }
        None
    }

    /// Repeats a write that must not be left undone until the database has answered it. Only the abort of the worker's
    /// tasks, after the shutdown timeout, ends it earlier.
    pub(crate) async fn persist<T, F: Future<Output = Result<T, StoreError>>>(&self, write: impl Fn() -> F) -> T {
        let mut tries = 0;
        loop {
            match write().await {
                Ok(answer) => return answer,
                Err(fault) => self.try_again(&fault),
            }
            self.pause(tries).await;
            tries += 1;
        }
    }

    /// Does the same as [`insist`](Self::insist), but returns the error of a write that the database refuses because of
    /// its message: it would refuse it again until somebody removes the cause.
    pub(crate) async fn insist_unless_refused<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        stop: &CancellationToken,
        write: impl Fn() -> F,
    ) -> Option<Result<T, BoxError>> {
        self.insist(stop, || async { refused(write().await) }).await
    }

    /// Does the same as [`persist`](Self::persist), but returns the error of a write that the database refuses because
    /// of its message.
    pub(crate) async fn persist_unless_refused<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        write: impl Fn() -> F,
    ) -> Result<T, BoxError> {
        self.persist(|| async { refused(write().await) }).await
    }

    fn try_again(&self, fault: &StoreError) {
        self.report(fault);
        tracing::debug!(error = crate::error::text(fault), "tried again");
    }

    /// Waits for the end of an outage, or if there is none for a while, longer from try to try. Cancel safe.
    pub(super) async fn pause(&self, tries: usize) {
        if self.is_up() {
            tokio::time::sleep(hold_wait(tries)).await;
        }
        self.over().await;
    }
}

fn refused<T>(answer: Result<T, StoreError>) -> Result<Result<T, BoxError>, StoreError> {
    match answer {
        Err(StoreError::Message(error)) => Ok(Err(error)),
        answer => answer.map(Ok),
    }
}
