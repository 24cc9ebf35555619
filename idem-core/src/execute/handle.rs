//! Calls handlers.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

use crate::caught::dropped;
use crate::panic_text::panic_text;
use crate::registry::Job;
use crate::routes::Route;
use crate::runtime::{Pipeline, at};
use crate::{BoxError, Store};

/// The reason why a handler did not return `Ok`.
pub(crate) enum Unhandled {
    /// It returned this error, or panicked.
    Failed(BoxError),
    /// It exceeded this timeout.
    Late(Duration),
    /// It was not called, since a suspect runs or waits.
    PutOff,
    /// The worker is stopping.
    Stopped,
}

impl<S: Store> Pipeline<S> {
    /// Runs the handler under its timeout, starting now. This is the only place where a panic of a handler is caught.
    pub(crate) async fn handle(
        &self,
        route: &Route<S>,
        job: Box<dyn Job<S>>,
        txn: &mut S::Txn,
        now: Instant,
    ) -> Result<(), Unhandled> {
        let outbox = job.outbox().cloned();
        let mut run = job.run(txn);
        let handled = tokio::select! {
            biased;
            ran = AssertUnwindSafe(&mut run).catch_unwind() => match ran {
                Ok(result) => result.map_err(Unhandled::Failed),
                Err(panic) => {
                    let text = panic_text(panic.as_ref());
                    dropped("the payload of a panic", panic);
                    Err(Unhandled::Failed(format!("the handler panicked: {text}").into()))
                }
            },
            // tokio limits how much a task does in one turn. A handler that never waits uses that up in each turn, and
            // its timeout, which comes behind it, would not even be looked at. `None` if its time is not representable.
            () = unconstrained(at(now.checked_add(route.timeout))) => Err(Unhandled::Late(route.timeout)),
            () = self.stop.cancelled() => Err(Unhandled::Stopped),
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
