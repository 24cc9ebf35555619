//! Settles one delivery, and extends the leases of those that wait.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use idem_core::{Acker, BackgroundTasks, BoxError, Settled};
use tokio::time::{Instant, sleep};

use crate::batch::{Batches, Ended};
use crate::error::Cause;
use crate::lease::Lease;
use crate::leases::Leases;
use crate::requests::{ANSWER, Answer, ENTRIES, Target};

/// Settles one delivery of a [`Queue`](crate::Queue), together with others.
///
/// An ack waits for the result of its entry in a `DeleteMessageBatch`, which makes it [`Settled::Confirmed`]. SQS confirms
/// the delete of a message that another worker has by then, and may not delete it, so a lease that is over by the local clock
/// is [`Settled::Stale`], and nothing is sent. A FIFO queue also reports an expired handle, which is `Stale` too.
///
/// An entry that fails because of a fault of the service is sent again for 10 seconds. Dropping the future of an ack or a release
/// does not stop it.
pub struct SqsAcker {
    pub(crate) lease: Arc<Lease>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) settling: Arc<Settling>,
}

/// The acks and releases of a source. They outlive its subscriptions, as the deliveries do.
pub(crate) struct Settling {
    acks: Batches<Arc<Lease>>,
    releases: Batches<Arc<Lease>>,
}

impl Settling {
    /// Starts the tasks that send them.
    pub(crate) fn start(target: &Arc<Target>, tasks: &mut BackgroundTasks) -> Arc<Self> {
        let weigh = |_: &Arc<Lease>| 0;
        let at = Arc::clone(target);
        let (acks, sending) = Batches::new(0, weigh, move |leases: Vec<Arc<Lease>>| {
            let at = Arc::clone(&at);
            async move { delete(&at, &leases).await }
        });
        tasks.spawn(sending);
        let at = Arc::clone(target);
        let (releases, sending) = Batches::new(0, weigh, move |leases: Vec<Arc<Lease>>| {
            let at = Arc::clone(&at);
            async move { at.change_visibility(&handles(&leases), Duration::ZERO).await }
        });
        tasks.spawn(sending);
        Arc::new(Self { acks, releases })
    }
}

/// How long after an ack that has failed it is sent again.
const AGAIN: Duration = Duration::from_secs(1);

/// Deletes up to ten messages. Those that fail are sent again after a second, because their effects are done, and until their leases
/// end they keep the rest of their groups from all workers.
async fn delete(target: &Target, leases: &[Arc<Lease>]) -> Vec<Answer> {
    let began = Instant::now();
    let mut results = target.delete(&handles(leases)).await;
    while results.iter().any(may_pass) && began.elapsed() < ANSWER {
        sleep(AGAIN).await;
        let failed = results.iter_mut().zip(leases).filter(|(result, lease)| may_pass(result) && lease.lasts());
        let (slots, failed): (Vec<_>, Vec<_>) = failed.map(|(result, lease)| (result, Arc::clone(lease))).unzip();
        if failed.is_empty() {
            break;
        }
        for (slot, result) in slots.into_iter().zip(target.delete(&handles(&failed)).await) {
            *slot = result;
        }
    }
    results
}

impl SqsAcker {
    /// Marks the delivery as being settled, and frees its slot: the next receive need not wait for the answer, which may never
    /// come. Returns `false` if the delivery can no longer be settled.
    fn settle(&self) -> bool {
        let can = self.lease.settle();
        if can {
            self.leases.remove(&self.lease);
        }
        can
    }
}

impl Acker for SqsAcker {
    /// Fails if the queue has not confirmed the delete: it may or may not have taken place.
    async fn ack(self) -> Result<Settled, BoxError> {
        if !self.settle() {
            return Ok(Settled::Stale);
        }
        settled(self.settling.acks.call(Arc::clone(&self.lease)).await)
    }

    /// Fails if there is no answer: the message is then redelivered when its visibility timeout ends.
    async fn release(self) -> Result<Settled, BoxError> {
        if !self.settle() {
            return Ok(Settled::Stale);
        }
        self.lease.release();
        settled(self.settling.releases.call(Arc::clone(&self.lease)).await)
    }

    fn is_live(&self) -> bool {
        self.lease.is_live()
    }
}

fn settled(answer: Result<Answer, Ended>) -> Result<Settled, BoxError> {
    match answer {
        Ok(Ok(())) => Ok(Settled::Confirmed),
        Ok(Err(failure)) if is_stale(failure.text()) => Ok(Settled::Stale),
        Ok(Err(failure)) => Err(failure.into()),
        Err(Ended) => Err("the source was closed before the queue has answered".into()),
    }
}

/// Returns whether an entry failed because of a fault that may pass.
fn may_pass(answer: &Answer) -> bool {
    answer.as_ref().is_err_and(|failure| failure.cause == Cause::Unavailable && !is_stale(failure.text()))
}

/// Returns whether an entry failed because its delivery has ended: a FIFO queue says so, and an extension on any queue.
fn is_stale(text: &str) -> bool {
    let code = text.split(':').next().unwrap_or_default();
    code.ends_with("ReceiptHandleIsInvalid")
        || code.ends_with("MessageNotInflight")
        || code.ends_with("InvalidParameterValue") && text.contains("parameter ReceiptHandle")
}

impl Drop for SqsAcker {
    fn drop(&mut self) {
        self.lease.drop_it();
    }
}

impl fmt::Debug for SqsAcker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsAcker").field("live", &self.is_live()).finish_non_exhaustive()
    }
}

/// The longest time after which a slot is freed, or a delivery that must not run is released.
const LOOK: Duration = Duration::from_secs(5);

/// Extends the leases of held deliveries after a third of the visibility timeout, releases what must not run any more, and
/// forgets dropped deliveries when their leases expire, which frees their slots. Runs as long as the source lives.
pub(crate) async fn keep(target: Arc<Target>, leases: Arc<Leases>, visibility: Duration) {
    // First a look: a subscription that lasts for less than the sleep extends the leases of the one before.
    loop {
        release(&target, &leases.take_cut_off()).await;
        leases.sweep();
        let mut due = leases.due();
        due.retain(|lease| {
            let is_last = lease.reaches_its_end();
            if is_last {
                tracing::warn!(
                    queue = %target.name,
                    "a delivery is still unsettled, and SQS hides no message for more than 12 hours: it will be redelivered"
                );
            }
            !is_last
        });
        let asked = Instant::now();
        join_all(due.chunks(ENTRIES).map(|chunk| extend(&target, chunk, visibility, asked))).await;
        // Twice as often as needed, because a lease becomes due between two checks.
        sleep((visibility / 6).min(LOOK)).await;
    }
}

async fn extend(target: &Target, leases: &[Arc<Lease>], visibility: Duration, asked: Instant) {
    let results = target.change_visibility(&handles(leases), visibility).await;
    for (lease, result) in leases.iter().zip(results) {
        match result {
            Ok(()) => lease.extended(asked, visibility),
            Err(failure) if is_stale(failure.text()) => {
                tracing::debug!(queue = %target.name, %failure, "a delivery has ended at the queue");
                lease.refuse();
            }
            Err(failure) => tracing::debug!(queue = %target.name, %failure, "a delivery was not extended"),
        }
    }
}

/// Releases deliveries that were taken from the leases.
pub(crate) async fn release(target: &Target, leases: &[Arc<Lease>]) {
    let chunks =
        leases.chunks(ENTRIES).map(async |chunk| target.change_visibility(&handles(chunk), Duration::ZERO).await);
    for failure in join_all(chunks).await.into_iter().flatten().filter_map(Result::err) {
        tracing::debug!(
            queue = %target.name,
            %failure,
            "a delivery was not released; it comes again when its visibility timeout ends"
        );
    }
}

fn handles(leases: &[Arc<Lease>]) -> Vec<String> {
    leases.iter().map(|lease| lease.handle.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Failure;

    #[test]
    fn an_entry_whose_delivery_has_ended_is_stale_and_any_other_failure_is_an_error() {
        for (code, message, is_stale) in [
            ("ReceiptHandleIsInvalid", "The receipt handle has expired", true),
            (
                "InvalidParameterValue",
                "Value h for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.",
                true,
            ),
            (
                "InvalidParameterValue",
                "Value h for parameter ReceiptHandle is invalid. Reason: Message does not exist",
                true,
            ),
            ("InvalidParameterValue", "Value 99999 for parameter VisibilityTimeout is invalid", false),
            ("InternalError", "expired", false),
            ("AccessDenied", "", false),
        ] {
            let settled = settled(Ok(Err(Failure::of(code, message))));
            assert_eq!(matches!(settled, Ok(Settled::Stale)), is_stale, "{code} {message}");
            assert_eq!(settled.is_err(), !is_stale, "{code} {message}");
        }
    }
}
