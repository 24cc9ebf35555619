//! The state of one subscription, and the time limits of its steps.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::consumer::Panic;
use crate::lag::Asked;
use crate::plan::Plan;
use crate::shared::Shared;

/// The state of one subscription, made by `subscribe`.
pub(crate) struct Subscription {
    pub(crate) plan: Plan,
    pub(crate) shared: Arc<Shared>,
    pub(crate) asked: Asked,
    /// Resolves when the thread has ended.
    pub(crate) ended: oneshot::Receiver<Panic>,
}

impl Subscription {
    /// Continues the panic of the thread, if it has panicked: the next subscription would meet the defect again, so it
    /// ends the worker.
    pub(crate) fn raise(&mut self) {
        if !self.ended.is_terminated()
            && let Ok(panic) = self.ended.try_recv()
        {
            resume_unwind(panic);
        }
    }

    /// Waits until the thread has ended, and continues its panic.
    pub(crate) async fn end(&mut self) {
        if !self.ended.is_terminated()
            && let Ok(panic) = (&mut self.ended).await
        {
            resume_unwind(panic);
        }
    }
}

/// Ends the thread, which would otherwise stay a member of the group.
impl Drop for Subscription {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// How long `subscribe` waits for the first assignment. Members that are slow to give up partitions may take longer.
pub(crate) const JOIN: Duration = Duration::from_secs(10);

/// The longest time by which a broker that does not answer can delay a shutdown. A worker waits for 5 seconds.
pub(crate) const CLOSE: Duration = Duration::from_secs(4);
