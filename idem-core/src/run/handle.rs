//! Calls handlers.

use std::panic::AssertUnwindSafe;
use std::pin::pin;

use futures_util::FutureExt;
use tokio::task::coop::unconstrained;
use tokio::time::sleep;

use crate::caught::dropped;
use crate::panic_text::panic_text;
use crate::registry::Job;
use crate::routes::Route;
use crate::runtime::Pipeline;
use crate::{BoxError, Store};

impl<S: Store> Pipeline<S> {
    /// Runs the handler under its timeout, starting now. Returns `None` if it was dropped before it had returned, because it was
    /// late or the worker stops. This is the only place where a panic of a handler is caught.
    pub(super) async fn handle(
        &self,
        route: &Route<S>,
        job: Box<dyn Job<S>>,
        txn: &mut S::Txn,
    ) -> Option<Result<(), BoxError>> {
        let outbox = job.outbox().cloned();
        let mut run = job.run(txn);
        // tokio limits how much a task does in one turn. A handler that never waits uses that up in each turn, and its timeout
        // would not even be looked at.
        let late = pin!(unconstrained(sleep(route.timeout)));
        let handled = tokio::select! {
            biased;
            ran = AssertUnwindSafe(&mut run).catch_unwind() => match ran {
                Ok(result) => Some(result),
                Err(panic) => {
                    let text = panic_text(panic.as_ref());
                    dropped("the payload of a panic", panic);
                    Some(Err(format!("the handler panicked: {text}").into()))
                }
            },
            () = late => None,
            () = self.stop.cancelled() => None,
        };
        // The drop runs user code too, and its panic must cost no more than its message.
        dropped("a handler", run);
        // A task that the handler has spawned may outlive it.
        if let Some(outbox) = outbox {
            outbox.end(route.handler.facts().name);
        }
        handled
    }
}
