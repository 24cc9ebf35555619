//! idem: the worker as a user has it, all settings at their defaults but the deliveries in flight.

use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use idem::{Postgres, Worker};

use crate::message::order_paid;
use crate::queue::{Deliveries, Queue};

const PATIENCE: Duration = Duration::from_secs(60);

/// Works the messages off; answers how many a second.
pub(crate) async fn run(store: &Postgres, lanes: usize, messages: Vec<Bytes>) -> Result<f64> {
    let queue = Queue::new(messages);
    let emptied = queue.clone();
    let worker = Worker::new("bench", store.clone(), Deliveries::of(queue.clone()))
        .handler::<order_paid>()
        .in_flight(lanes)
        .run_until(async move { emptied.emptied().await });
    // A worker holds what it cannot process, for ever; a measurement has to end.
    tokio::time::timeout(PATIENCE, worker).await.context("the worker did not empty its queue within a minute")??;
    queue.rate().context("the worker ended before its queue was empty")
}
