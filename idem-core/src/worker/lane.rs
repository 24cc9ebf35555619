//! A lane: one of the tasks that process deliveries from start to settlement, one batch at a time.

use std::pin::pin;
use std::sync::Arc;

use crate::process::Waiting;
use crate::runtime::{Arrival, Pipeline, Queue};
use crate::{Acker, Store};

/// Takes deliveries until the queue is closed and empty. A lane is never dropped between start and settlement, except
/// at the end of the shutdown timeout.
pub(crate) async fn run<S: Store, A: Acker>(
    pipeline: Arc<Pipeline<S>>,
    deliveries: Queue<Arrival<A>>,
    waiting: Queue<Waiting<A>>,
) {
    let linger = pipeline.settings.linger;
    let mut taken = Vec::new();
    while crate::batch::collect(&deliveries, pipeline.throttle.size(), linger, &mut taken).await {
        let number = taken.len() as f64;
        pipeline.metrics.in_flight.increment(number);
        // Panics in user code are caught elsewhere. After a panic here, the unsettled delivery is redelivered once the
        // worker has ended.
        pipeline.defect.task("lane", pin!(pipeline.deliver_some(&mut taken, &waiting))).await;
        pipeline.metrics.in_flight.decrement(number);
    }
}
