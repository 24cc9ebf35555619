//! What a failed statement of idem means: writes that are repeated until the database has answered, and those that it refuses
//! for one message, although it works for others.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::store::{Row, StoreError};
use crate::{BoxError, Delivery, Store};

use super::ended::{Ended, Wait};
use super::outage::Outage;
use super::pipeline::Pipeline;
use super::waits::hold_wait;

impl Outage {
    /// Returns what a failure of one of idem's own statements means for a message.
    pub(crate) fn hold_for(&self, fault: StoreError) -> Ended {
        self.report(&fault);
        Ended::Park(match fault {
            StoreError::Message(error) => Wait::Refused(error),
            StoreError::LockTimeout | StoreError::Serialization(_) => Wait::Claim,
            StoreError::ConnectionLost(_) => Wait::Answer,
            StoreError::Unavailable(_) => Wait::Free,
        })
    }

    /// Repeats a statement until the database has answered it. Returns `None` if `stop` comes first. With a token that nobody
    /// cancels, only the abort of the worker's tasks, after the shutdown timeout, ends it earlier.
    pub(crate) async fn insist<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        stop: &CancellationToken,
        write: impl Fn() -> F,
    ) -> Option<T> {
        for tries in 0.. {
            match write().await {
                Ok(answer) => return Some(answer),
                Err(fault) => {
                    self.report(&fault);
                    tracing::debug!(error = crate::error::text(&fault), "tried again");
                }
            }
            stop.run_until_cancelled(self.pause(tries)).await?;
        }
        None
    }

    /// Waits for the end of an outage, or if there is none for a while, longer from try to try. Cancel safe.
    async fn pause(&self, tries: usize) {
        if self.is_up() {
            tokio::time::sleep(hold_wait(tries)).await;
        }
        self.over().await;
    }
}

/// Takes a refusal of a write because of its message for an answer: the database would refuse it again until somebody
/// removes the cause.
fn refused<T>(answer: Result<T, StoreError>) -> Result<Result<T, BoxError>, StoreError> {
    match answer {
        Err(StoreError::Message(error)) => Ok(Err(error)),
        answer => answer.map(Ok),
    }
}

impl<S: Store> Pipeline<S> {
    /// Abandons a transaction after a failure. If the database answers, the transaction is rolled back and its
    /// connection can be reused. Returns the failure, or that of the rollback.
    pub(crate) async fn abandon(&self, txn: S::Txn, fault: StoreError) -> StoreError {
        match fault.is_answered() {
            true => self.store.rollback(txn).await.err().unwrap_or(fault),
            false => fault,
        }
    }

    /// Repeats the write of a row's result until the database has answered. `tries`: how often that was tried before, if the
    /// database has refused it, for the log.
    ///
    /// # Errors
    /// It was not written, so the lease of the row ends, and a call counts as one that may have had an effect. `Lost`: another
    /// process has taken the row meanwhile, or an operator has changed it. `Park`: the database refuses it because of the message.
    /// `Stopped`: the worker has stopped before the database has answered.
    pub(crate) async fn insist_for<F: Future<Output = Result<bool, StoreError>>>(
        &self,
        row: &Row,
        tries: Option<usize>,
        write: impl Fn() -> F,
    ) -> Result<(), Ended> {
        match self.outage.insist(&self.stop, || async { refused(write().await) }).await {
            Some(Ok(true)) => Ok(()),
            Some(Ok(false)) => Err(Ended::Lost),
            Some(Err(error)) => {
                warn_of_refusal(&row.delivery, tries, error.as_ref());
                Err(Ended::Park(Wait::Refused(error)))
            }
            None => Err(Ended::Stopped),
        }
    }
}

/// A delivery that counts as refused while this exists.
pub(crate) struct Refused(Arc<Outage>);

impl Refused {
    pub(crate) fn new(outage: &Arc<Outage>) -> Self {
        outage.count_refused(|refused| refused + 1);
        Self(outage.clone())
    }
}

impl Drop for Refused {
    fn drop(&mut self) {
        self.0.count_refused(|refused| refused.saturating_sub(1));
    }
}

/// Logs the message, because it is the one to investigate.
pub(crate) fn warn_of_refusal(delivery: &Delivery, tries: Option<usize>, error: &(dyn std::error::Error + 'static)) {
    tracing::warn!(
        source = delivery.source(),
        message_id = delivery.message_id(),
        position = delivery.position(),
        tries,
        error = crate::error::text(error),
        "the database refuses to write for a message; the message stays where it is, with the broker or in the inbox, and is \
         tried again: check the constraints and triggers on idem's tables, and the size of the message"
    );
}
