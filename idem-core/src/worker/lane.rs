//! A lane: one of the tasks that process deliveries from start to settlement, one batch at a time.

use std::pin::pin;
use std::sync::Arc;

use async_channel::{Receiver, Sender};

use crate::park::Parked;
use crate::runtime::{Arrival, Pipeline};
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
    while crate::batch::collect(&deliveries, pipeline.throttle.size(), linger, &mut taken).await {
        let number = taken.len() as f64;
        pipeline.metrics.in_flight.increment(number);
        // Panics in user code are caught elsewhere. After a panic here, the unsettled delivery is redelivered once the
        // worker has ended.
        pipeline.defect.task("lane", pin!(pipeline.deliver_some(&mut taken, &parked))).await;
        pipeline.metrics.in_flight.decrement(number);
    }
}
