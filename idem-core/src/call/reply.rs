//! Waits for the reply of a call, for as long as its row is taken.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::task::Poll;
use std::time::Instant;

use futures_util::FutureExt;
use tokio::task::coop::unconstrained;
use tokio_util::sync::CancellationToken;

use crate::BoxError;
use crate::caught::dropped;
use crate::external::{CallError, CallLimits, CallReply, Calling, Doubt};
use crate::panic_text::panic_text;

/// Waits for the reply of a call, or of the question what became of one, within its timeout and the lease of its row. A
/// call that is late because its process did not run is dropped without another poll, which might send. Here panics of
/// calls are caught. Returns `None` if the worker stops first.
pub(super) async fn reply(
    limits: &CallLimits,
    mut calling: Calling,
    taken: Instant,
    stop: &CancellationToken,
) -> Option<Result<CallReply, (Doubt, BoxError)>> {
    let CallLimits { name, timeout, .. } = limits;
    let may_send = || taken.elapsed() < limits.sends_for();
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
        // It comes behind the call, which may have used up what tokio allows a task in one turn.
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
    use std::pin::pin;
    use std::time::Duration;

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
