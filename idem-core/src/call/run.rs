//! Makes the call of one row, and waits for its reply.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::task::coop::unconstrained;
use tokio_util::sync::CancellationToken;

use crate::caught::dropped;
use crate::external::{CallError, CallLimits, CallReply, Calling, Doubt};
use crate::panic_text::panic_text;
use crate::registry::{NoJob, Undeliverable};
use crate::routes::Route;
use crate::runtime::{Permit, Pipeline, Running};
use crate::store::{CallResult, Row, called_for};
use crate::{BoxError, Reason, Store};

use super::result::unresolved;
use super::step::{self, Step};

/// The minimum interval between two log lines about calls that begin too late.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The reply of a call, or its error, and whether the call may have had an effect nevertheless.
type Replied = Result<CallReply, (Doubt, BoxError)>;

impl<S: Store> Pipeline<S> {
    /// Makes the call of a fetched row, or asks what became of it, and records the result. In every case a result is recorded, or
    /// the lease ends.
    pub(super) async fn call_row(&self, row: &Row, fetched: Instant) {
        // Pinned first, like other large futures.
        let work = pin!(async {
            // An orphaned row that has the process to itself could end it, and leave the call in doubt.
            let running = Running::new(Permit::Direct(self.isolation_lock.direct().await));
            let called = pin!(async {
                let result = self.call(&running, row, fetched).await?;
                self.record_call(row, result).await
            });
            running.during(&self.outage, called).await
        });
        self.report_row(row, work).await;
    }

    /// Makes the call, or asks. Returns what has become of it; `None` if another worker has the row, or this one stops.
    async fn call(&self, running: &Running, row: &Row, mut fetched: Instant) -> Option<CallResult> {
        let route = self.routes.get(row.identity.handler)?;
        let limits = &route.external.as_ref()?.limits;
        if !limits.is_of(row) {
            let now = limits.kept_name();
            let why = format!("it was made by another version of the service, and the handler now makes `{now}`");
            return Some(CallResult::dead(Reason::Unresolved, unresolved(limits, row, &why)));
        }
        let mut age = called_for(row, limits.lease());
        loop {
            // If nothing is sent now, none has begun under the key.
            let is_unused = age.is_none();
            let snoozed = |due| Some(CallResult { is_unused, ..CallResult::snoozed(due) });
            let asks = match step::next(limits, row.calls.unwrap_or(0), age, fetched.elapsed()) {
                // A drain begins no more calls.
                Step::Call | Step::Ask if self.draining.is_cancelled() => return snoozed(Duration::ZERO),
                Step::Call => false,
                Step::Ask => true,
                Step::Wait(due) => return snoozed(due),
                Step::Snooze => {
                    if self.late_calls.allows(LOG_INTERVAL) {
                        tracing::warn!(
                            id = row.id,
                            "a call was not begun within five seconds of the fetch of its message, because the database was slow, \
                             or an orphaned row had the process to itself: it is tried again"
                        );
                    }
                    return snoozed(Duration::ZERO);
                }
                Step::Dead(reason) => return Some(CallResult::dead(reason, why_dead(limits, row, reason))),
            };
            let replied = match self.send(running, (route, limits), row, asks, fetched).await {
                Ok(replied) => replied,
                // A call that was cut off may have been sent.
                Err(ended) => return Some(CallResult { is_unused: is_unused && !ended.in_doubt, ..ended }),
            };
            return match replied {
                Ok(CallReply::Answer(Ok(answer))) => Some(self.answered(answer)),
                Ok(CallReply::Answer(Err(error))) => {
                    let error = format!("the answer of the call `{}` has no JSON form: {error}", limits.name);
                    Some(CallResult::dead(Reason::Permanent, error))
                }
                Ok(CallReply::NotThere) => {
                    (fetched, age) = (self.date(row, limits).await?, None);
                    continue;
                }
                Ok(CallReply::Unknown) => {
                    let why = unresolved(limits, row, "the provider does not know it either");
                    Some(CallResult::dead(Reason::Unresolved, why))
                }
                Err((doubt, error)) => {
                    let left = limits.lease().saturating_sub(fetched.elapsed());
                    self.call_failed((route, limits), row, (doubt, error, left), asks, is_unused)
                }
            };
        }
    }

    /// Sends the request of a call, or of a question, and returns the reply.
    ///
    /// # Errors
    /// The result of a row for which nothing was sent, or for which the end of the worker has cut the call off.
    async fn send(
        &self,
        running: &Running,
        (route, limits): (&Route<S>, &CallLimits),
        row: &Row,
        asks: bool,
        fetched: Instant,
    ) -> Result<Replied, CallResult> {
        let snoozed = CallResult::snoozed(Duration::ZERO);
        let Some(user_code) = running.user_code() else { return Err(snoozed) };
        // Decodes the message, and extracts the parameters.
        let fits = self.limit(&row.delivery).map_err(NoJob::from);
        let calling = match fits.and_then(|()| route.handler.begin_call(&row.delivery, &row.identity.key, asks)) {
            Ok(Ok(calling)) => calling,
            Ok(Err(error)) => return Ok(Err((Doubt::NotDone, error))),
            Err(NoJob::Undeliverable(Undeliverable { reason, error })) => return Err(CallResult::dead(reason, error)),
            Err(NoJob::Unprepared) => {
                drop(user_code);
                running.end();
                // The preparation may last for as long as its lease lasts.
                let left = limits.sends_for().saturating_sub(fetched.elapsed());
                let turn = self.turn_to_prepare(row);
                return Err(match self.prepare(turn, route, &row.delivery, Some(left)).await {
                    Ok(due) => CallResult::snoozed(due),
                    Err(error) => CallResult::dead(Reason::Undecodable, error),
                });
            }
        };
        let replied = reply(limits, calling, fetched, &self.stop).await;
        drop(user_code);
        // No attempt is recorded for a call that was cut off.
        replied.ok_or(CallResult { in_doubt: !asks, ..snoozed })
    }

    /// Dates the call of a row anew, because the provider knows of none under its key: the life of the key begins with the first
    /// effect under it, which is still to come. The date is written before anything is sent. Returns since when the row is
    /// taken; `None` if another worker has it, or this one stops.
    ///
    /// The key stays: a restored row still has the key under which it was called since, and by it the provider recognizes a request
    /// of an earlier call that comes late.
    async fn date(&self, row: &Row, limits: &CallLimits) -> Option<Instant> {
        self.outage.retry_until_answered(&self.stop, || self.store.date_call(row, limits.lease())).await.flatten()
    }
}

fn why_dead(limits: &CallLimits, row: &Row, reason: Reason) -> String {
    match reason {
        Reason::Unresolved => {
            let why = match limits.key_life {
                Some(_) => "its key is too old to be used again, and no `reconcile` can be asked",
                None => {
                    "it has begun, and its process or its connection ended before it had a result. It says `at_most_once`, so \
                     it is not repeated, and no `reconcile` can be asked"
                }
            };
            unresolved(limits, row, why)
        }
        _ => format!(
            "the call `{}` began too often without a result, because processes ended meanwhile, or because the database refused \
             its results: replay the message if they were killed from outside, or once the cause is removed",
            limits.name
        ),
    }
}

/// Waits for the reply of a call, or of the question what became of one, within its timeout and the lease of its row. A
/// call that is late because its process did not run is dropped without another poll, which might send. Here panics of
/// calls are caught. Returns `None` if the worker stops first.
async fn reply(
    limits: &CallLimits,
    mut calling: Calling,
    fetched: Instant,
    stop: &CancellationToken,
) -> Option<Replied> {
    let CallLimits { name, timeout, .. } = limits;
    let may_send = || fetched.elapsed() < limits.sends_for();
    let unknown = |error: String| Some(Err((Doubt::Unknown, BoxError::from(error))));
    let replied = tokio::select! {
        biased;
        replied = polled_while(AssertUnwindSafe(&mut calling).catch_unwind(), may_send) => match replied {
            Some(Ok(replied)) => Some(replied.map_err(CallError::into_parts)),
            Some(Err(panic)) => unknown(format!("the call `{name}` panicked: {}", panic_text(panic.as_ref()))),
            None => unknown(format!(
                "the call `{name}` was given up, because its process did not run until the lease of the message was \
                 almost over"
            )),
        },
        // The timer is polled behind the call, which may have used up what tokio allows a task in one turn.
        () = unconstrained(tokio::time::sleep(*timeout)) => {
            unknown(format!("the call `{name}` exceeded its timeout of {timeout:?}"))
        }
        () = stop.cancelled() => None,
    };
    // The drop runs user code too.
    dropped("a call", calling);
    replied
}

/// Polls a future only while `may_send` returns `true`, and returns `None` once it does not. Each poll of a call may be the
/// one that sends its request, also the first one after a pause, when another worker may have the row. Cancel safe if the
/// future is.
fn polled_while<F: Future + Unpin>(
    mut future: F,
    may_send: impl Fn() -> bool,
) -> impl Future<Output = Option<F::Output>> {
    poll_fn(move |context| match may_send() {
        true => future.poll_unpin(context).map(Some),
        false => Poll::Ready(None),
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::task::coop::has_budget_remaining;

    use super::*;

    /// Only the call lets time pass here, as it never waits.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_never_waits_ends_at_its_timeout() {
        let limits = CallLimits {
            name: "charge",
            timeout: Duration::from_secs(20),
            key_life: None,
            reconciles: false,
            ask_after: Duration::ZERO,
            writes: false,
            takes_key: false,
        };
        let (_, mut closed) = tokio::sync::mpsc::channel::<()>(1);
        let calling: Calling = Box::pin(async move {
            for _ in 0..60 {
                while has_budget_remaining() {
                    closed.recv().await;
                }
                tokio::time::advance(Duration::from_secs(1)).await;
            }
            Ok(CallReply::Unknown)
        });
        let replied = reply(&limits, calling, Instant::now(), &CancellationToken::new()).await;
        let Some(Err((_, error))) = replied else { panic!("it had no timeout") };
        assert!(error.to_string().contains("exceeded its timeout of 20s"), "{error}");
    }

    #[test]
    fn a_call_is_not_polled_again_once_nothing_may_be_sent() {
        let (polls, may_send) = (Cell::new(0), Cell::new(true));
        let call = poll_fn(|_| {
            polls.set(polls.get() + 1);
            if polls.get() < 3 { Poll::Pending } else { Poll::Ready("sent") }
        });
        let mut call = pin!(polled_while(call, || may_send.get()));
        assert_eq!(call.as_mut().now_or_never(), None);
        assert_eq!((call.as_mut().now_or_never(), polls.get()), (None, 2));
        may_send.set(false);
        assert_eq!((call.as_mut().now_or_never(), polls.get()), (Some(None), 2), "its third poll would send");
    }

    #[test]
    fn a_call_that_ends_in_time_has_its_reply() {
        assert_eq!(polled_while(std::future::ready(7), || true).now_or_never(), Some(Some(7)));
    }
}
