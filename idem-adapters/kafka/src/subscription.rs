//! The state of one subscription, and the time limits of its steps.

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
    pub(crate) ended: oneshot::Receiver<Panic>,
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
