//! A delivery that waits to be stored.

use tokio::time::Instant;

use crate::runtime::Pipeline;
use crate::{Delivery, Store};

/// A delivery to be stored.
pub(super) struct Arrived<A> {
    pub(super) delivery: Box<Delivery>,
    pub(super) acker: A,
    /// When its lease began.
    pub(super) since: Instant,
    pub(super) counted: Counted,
}

impl<A> Arrived<A> {
    pub(super) fn new<S: Store>(pipeline: &Pipeline<S>, delivery: Box<Delivery>, acker: A) -> Self {
        Self::again(delivery, acker, Counted::new(&pipeline.metrics.in_flight))
    }

    /// Wraps a delivery that comes back from a batch.
    pub(super) fn again(delivery: Box<Delivery>, acker: A, counted: Counted) -> Self {
        Self { delivery, acker, since: Instant::now(), counted }
    }
}

/// Counts a delivery as in flight for as long as it lives.
pub(super) struct Counted(metrics::Gauge);

impl Counted {
    pub(super) fn new(in_flight: &metrics::Gauge) -> Self {
        in_flight.increment(1);
        Self(in_flight.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}
