//! Waits for the reply of a call.

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt;

use crate::external::{CallLimits, CallReply, Calling, Doubt};
use crate::panic_text::panic_text;
use crate::registry::Unfit;
use crate::runtime::Pipeline;
use crate::{BoxError, Store};

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

impl<S: Store> Pipeline<S> {
    /// Waits for the reply of a call, or of the question what became of one, within its timeout and the lease of its row. A
    /// call that is late because its process did not run is dropped without another poll, which might send. Here panics of
    /// calls are caught.
    pub(super) async fn reply(&self, limits: &CallLimits, mut calling: Calling, taken: Taken) -> Ended {
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
            () = tokio::time::sleep(*timeout) => {
                let late = format!("the call `{name}` exceeded its timeout of {timeout:?}");
                Ended::Failed(Doubt::Unknown, late.into())
            }
            () = self.stop.cancelled() => Ended::Stopped,
        };
        // The drop runs user code too.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(calling))) {
            tracing::warn!(panic = panic_text(panic.as_ref()), "a call panicked while it was dropped");
        }
        ended
    }
}
