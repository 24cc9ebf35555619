//! Waits for the reply of a call.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use tokio::task::coop::unconstrained;
use tokio_util::sync::CancellationToken;

use crate::BoxError;
use crate::caught::dropped;
use crate::external::{CallLimits, CallReply, Calling, Doubt};
use crate::panic_text::panic_text;
use crate::registry::Unfit;

use super::taken::{Taken, polled_while};

/// How a call has ended.
pub(super) enum Ended {
    Replied(CallReply),
    Failed(Doubt, BoxError),
    /// It did not begin, because its message can never be read.
    Unfit(Unfit),
    /// It did not begin, because its codec has to prepare first.
    Unprepared,
    /// The worker stops.
    Stopped,
}

/// Waits for the reply of a call, or of the question what became of one, within its timeout and the lease of its row. A
/// call that is late because its process did not run is dropped without another poll, which might send. Here panics of
/// calls are caught.
pub(super) async fn reply(limits: &CallLimits, mut calling: Calling, taken: Taken, stop: &CancellationToken) -> Ended {
    let CallLimits { name, timeout, .. } = limits;
    let may_send = || taken.elapsed() < limits.sends_for();
    let ended = tokio::select! {
        biased;
        replied = polled_while(AssertUnwindSafe(&mut calling).catch_unwind(), may_send) => match replied {
            Some(Ok(Ok(reply))) => Ended::Replied(reply),
            Some(Ok(Err(error))) => {
                let (doubt, error) = error.into_parts();
                Ended::Failed(doubt, error)
            }
            Some(Err(panic)) => {
                let text = panic_text(panic.as_ref());
                Ended::Failed(Doubt::Unknown, format!("the call `{name}` panicked: {text}").into())
            }
            None => {
                let late = format!(
                    "the call `{name}` was given up, because its process did not run until the lease of the message was \
                     almost over, or the clock of its machine was set forward"
                );
                Ended::Failed(Doubt::Unknown, late.into())
            }
        },
        // It comes behind the call, which may have used up what tokio allows a task in one turn.
        () = unconstrained(tokio::time::sleep(*timeout)) => {
            let late = format!("the call `{name}` exceeded its timeout of {timeout:?}");
            Ended::Failed(Doubt::Unknown, late.into())
        }
        () = stop.cancelled() => Ended::Stopped,
    };
    // The drop runs user code too.
    dropped("a call", calling);
    ended
}

#[cfg(test)]
mod tests {
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
        let ended = reply(&limits, calling, Taken::now(), &CancellationToken::new()).await;
        let Ended::Failed(_, error) = ended else { panic!("it had no timeout") };
        assert!(error.to_string().contains("exceeded its timeout of 20s"), "{error}");
    }
}
