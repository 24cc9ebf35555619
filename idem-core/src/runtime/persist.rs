//! Writes that are repeated until the database has answered.

use tokio_util::sync::CancellationToken;

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

    fn try_again(&self, fault: &StoreError) {
        self.report(fault);
        tracing::debug!(error = crate::error::text(fault), "tried again");
    }

    async fn pause(&self, tries: usize) {
        if !self.over_or_trial().await {
            tokio::time::sleep(hold_wait(tries)).await;
        }
    }
}
