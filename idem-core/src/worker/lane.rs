//! A lane: one of the tasks that take deliveries all the way, one at a time.

use std::pin::pin;
use std::sync::Arc;

use crate::process::Waiting;
use crate::runtime::{Arrival, Pipeline, Queue};
use crate::{Acker, Store};

/// Takes deliveries until the queue is closed and empty. From begin to settle a lane is never dropped in the middle,
/// except by the end of the worker's patience.
pub(crate) async fn run<S: Store, A: Acker>(
    pipeline: Arc<Pipeline<S>>,
    deliveries: Queue<Arrival<A>>,
    waiting: Queue<Waiting<A>>,
) {
    let linger = pipeline.settings.linger;
    let mut taken = Vec::new();
    while crate::batch::collect(&deliveries, pipeline.pace.size(), linger, &mut taken).await {
        let number = taken.len() as f64;
        pipeline.gauges.in_flight.increment(number);
        // What is a user's is caught elsewhere. A delivery that was not settled comes again, after the end of the worker.
        pipeline.defect.task("lane", pin!(pipeline.deliver_some(&mut taken, &waiting))).await;
        pipeline.gauges.in_flight.decrement(number);
    }
}
