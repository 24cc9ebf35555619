//! What a failed statement of idem means: writes that are repeated until the database has answered, and those that it refuses
//! for one message, although it works for others. The delays before a delivery that is held or refused is tried again, and
//! between looks at a database that is away. How often something is done at most.

use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::store::{Row, StoreError};
use crate::{Delivery, Store};

use super::ended::{Ended, Wait};
use super::outage::Outage;
use super::pipeline::Pipeline;

impl Outage {
    /// Returns what a failure of one of idem's own statements means for a message.
    pub(crate) fn hold_for(&self, fault: StoreError) -> Ended {
        self.report(&fault);
        Ended::Park(match fault {
            StoreError::Message(error) => Wait::Refused(error),
            StoreError::LockTimeout | StoreError::Serialization(_) => Wait::Claim,
            StoreError::ConnectionLost(_) => Wait::Unanswered,
            StoreError::Unavailable(_) | StoreError::Denied(_) => Wait::Free,
        })
    }

    /// Repeats a statement until the database has answered it. Returns `None` if `stop` comes first. With a token that nobody
    /// cancels, only the abort of the worker's tasks, after the shutdown timeout, ends it earlier.
    pub(crate) async fn retry_until_answered<T, F: Future<Output = Result<T, StoreError>>>(
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
            let pause = async {
                if self.is_up() {
                    tokio::time::sleep(park_delay(tries)).await;
                }
                self.over().await;
            };
            stop.run_until_cancelled(pause).await?;
        }
        None
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
    /// process has fetched the row meanwhile, or an operator has changed it. `Park`: the database refuses it because of the
    /// message. `Stopped`: the worker has stopped before the database has answered.
    pub(crate) async fn write_until_answered<F: Future<Output = Result<bool, StoreError>>>(
        &self,
        row: &Row,
        tries: Option<usize>,
        write: impl Fn() -> F,
    ) -> Result<(), Ended> {
        // A refusal because of the message is an answer: it would be repeated until somebody removes the cause.
        let answered = || async {
            match write().await {
                Err(StoreError::Message(error)) => Ok(Err(error)),
                answer => answer.map(Ok),
            }
        };
        match self.outage.retry_until_answered(&self.stop, answered).await {
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
         tried again: check the size of the message, the constraints and triggers on idem's tables, or in a key-value store, which \
         program has written the record of the message"
    );
}

const SHORT: Duration = Duration::from_secs(2);
const BUSY: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(60);

/// Delays that grow from the first one to at most the longest one, each with a jitter.
pub(crate) fn growing_waits(first: Duration, longest: Duration) -> ExponentialBackoff {
    // The jitter adds up to 100 percent.
    let waits = ExponentialBuilder::default().with_min_delay(first).with_max_delay(longest / 2);
    waits.with_jitter().without_max_times().build()
}

/// Short delays first, because most outages are a lost connection; then up to two seconds.
pub(super) fn short() -> impl Iterator<Item = Duration> {
    growing_waits(Duration::from_millis(50), SHORT)
}

/// Returns the delay before the next try of a parked delivery: longer with each try, up to two seconds.
pub(crate) fn park_delay(tries: usize) -> Duration {
    short().nth(tries.min(16)).unwrap_or(SHORT)
}

/// Returns the delay before the next try of a delivery whose claim another transaction holds: up to ten seconds, because
/// that transaction may run for as long as a handler, and each try waits for it in a lane for up to a second.
pub(crate) fn busy_wait(tries: usize) -> Duration {
    growing_waits(Duration::from_millis(50), BUSY).nth(tries.min(16)).unwrap_or(BUSY)
}

/// Returns the delay before the next try of a message that the database refuses although it works for others: up to one
/// minute, because an operator has to fix something first.
pub(crate) fn refused_wait(tries: usize) -> Duration {
    growing_waits(Duration::from_millis(100), LONG).nth(tries.min(16)).unwrap_or(LONG)
}

/// Adds jitter of up to 10 percent either way to a poll interval, which spreads the polls of many processes.
pub(crate) fn jittered(poll: Duration) -> Duration {
    poll.mul_f64(0.9 + 0.2 * fastrand::f64())
}

/// When something was last done that is done at most once in a while.
#[derive(Debug, Default)]
pub(crate) struct Rate(Mutex<Option<Instant>>);

impl Rate {
    /// Returns whether this time has passed since the last call that returned `true`.
    pub(crate) fn allows(&self, pause: Duration) -> bool {
        let mut last = self.0.lock();
        let allows = last.is_none_or(|last| last.elapsed() >= pause);
        if allows {
            *last = Some(Instant::now());
        }
        allows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_is_done_again_after_the_pause() {
        let rate = Rate::default();
        let hour = Duration::from_secs(3600);
        assert!(rate.allows(hour) && !rate.allows(hour));
        assert!(rate.allows(Duration::ZERO));
    }
}
