//! idem: the worker as a user has it, all settings at their defaults but the deliveries in flight.

use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use idem::{Postgres, Worker};

use crate::message::order_paid;
use crate::queue::{Deliveries, Queue};

/// Works the messages off; the time is from the subscription to the last ack.
pub(crate) async fn run(store: &Postgres, lanes: usize, messages: Vec<Bytes>) -> Result<Duration> {
    let queue = Queue::new(messages);
    let emptied = queue.clone();
    Worker::new("bench", store.clone(), Deliveries::of(queue.clone()))
        .handler::<order_paid>()
        .in_flight(lanes)
        .run_until(async move { emptied.emptied().await })
        .await?;
    queue.took().context("the worker ended before its queue was empty")
}
