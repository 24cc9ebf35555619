//! A lane: one of the tasks that process deliveries from start to settlement, one batch at a time.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, Sender};
use tokio::time::{Instant, timeout_at};

use crate::park::{Arrival, Parked};
use crate::runtime::Pipeline;
use crate::{Acker, Store};

/// Takes deliveries until the queue is closed and empty. A lane is never dropped between start and settlement, except
/// at the end of the shutdown timeout.
pub(crate) async fn run<S: Store, A: Acker>(
    pipeline: Arc<Pipeline<S>>,
    deliveries: Receiver<Arrival<A>>,
    parked: Sender<Parked<A>>,
) {
    let linger = pipeline.settings.linger;
    let mut taken = Vec::new();
    while collect(&deliveries, pipeline.throttle.size(), linger, &mut taken).await {
        let number = taken.len() as f64;
        pipeline.metrics.in_flight.increment(number);
        // Panics in user code are caught elsewhere. After a panic here, the unsettled delivery is redelivered once the
        // worker has ended.
        pipeline.defect.task("lane", pin!(pipeline.deliver_some(&mut taken, &parked))).await;
        pipeline.metrics.in_flight.decrement(number);
    }
}

/// Waits for one item, and takes all others that are available, up to `limit`; with `linger`, also those that arrive
/// within that time. Returns `false` if the queue is closed and empty. Cancel safe: items already taken stay in
/// `taken`.
async fn collect<T>(from: &Receiver<T>, limit: usize, linger: Duration, taken: &mut Vec<T>) -> bool {
    let Ok(first) = from.recv().await else { return false };
    taken.push(first);
    while taken.len() < limit
        && let Ok(next) = from.try_recv()
    {
        taken.push(next);
    }
    if !linger.is_zero() {
        let until = Instant::now() + linger;
        while taken.len() < limit
            && let Ok(Ok(next)) = timeout_at(until, from.recv()).await
        {
            taken.push(next);
        }
    }
    true
}
