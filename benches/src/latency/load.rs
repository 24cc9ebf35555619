//! Publishes at a fixed rate, whatever the consumer does.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use idem_brokers::Broker as Client;
use tokio::runtime::Builder;
use tokio::task::{JoinHandle, JoinSet, LocalSet, spawn_blocking};
use tokio::time::{interval, timeout};

use super::times::Times;

/// The name of the queue, stream or topic.
pub(crate) const NAME: &str = "idem-bench-latency";

/// How long the first messages may take, from the connection of the consumer on.
const PATIENCE: Duration = Duration::from_secs(60);

/// The messages of one run.
pub(crate) struct Load {
    pub(crate) address: String,
    /// The number of messages that are published at once, before the others: they cover the start of the consumer.
    pub(crate) warm_up: usize,
    pub(crate) messages: usize,
    /// Messages per second.
    pub(crate) rate: f64,
    pub(crate) times: Times,
}

impl Load {
    /// Publishes on a thread with its own runtime, so that the consumer's tasks do not delay it. Returns the reached
    /// messages per second.
    pub(crate) fn start<B: Client>(self) -> JoinHandle<Result<f64>> {
        spawn_blocking(move || {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            LocalSet::new().block_on(&runtime, self.publish::<B>())
        })
    }

    async fn publish<B: Client>(self) -> Result<f64> {
        let client = Rc::new(B::connect(&self.address, NAME).await?);
        let first: Vec<_> = (0..self.warm_up).map(|number| self.times.message(number)).collect::<Result<_>>()?;
        client.publish(&first).await?;
        let processed = timeout(PATIENCE, self.times.reached(self.warm_up)).await;
        processed.with_context(|| format!("the first {} messages were not processed in time", self.warm_up))?;

        let (mut confirms, began) = (JoinSet::new(), Instant::now());
        let mut ticks = interval(Duration::from_secs_f64(1.0 / self.rate));
        for number in self.warm_up..self.warm_up + self.messages {
            ticks.tick().await;
            let (client, message) = (client.clone(), self.times.message(number)?);
            // Not awaited here: a broker that confirms late must not lower the rate, which would hide its latency.
            confirms.spawn_local(async move { client.publish(&[message]).await });
            while let Some(confirmed) = confirms.try_join_next() {
                confirmed??;
            }
        }
        let rate = self.messages as f64 / began.elapsed().as_secs_f64();
        while let Some(confirmed) = confirms.join_next().await {
            confirmed??;
        }
        Ok(rate)
    }
}
