//! From a real broker to the database: the messages are published, then a worker consumes them all.

use anyhow::{Context, Result};
use bytes::Bytes;
use idem::{Outcome, Postgres, Source, Worker};
use idem_brokers::{Broker as Client, Kafka, Nats, RabbitMq};

use crate::case::{Broker, Case, Side};
use crate::message::order_paid;
use crate::queue::Queue;
use crate::worker;

/// The addresses set in the environment.
pub(crate) struct Brokers(Vec<(Broker, String)>);

const ALL: [(Broker, &str); 3] =
    [(Broker::RabbitMq, RabbitMq::VARIABLE), (Broker::Nats, Nats::VARIABLE), (Broker::Kafka, Kafka::VARIABLE)];

/// The name of the queue, stream or topic.
pub(crate) const NAME: &str = "idem-bench";

impl Brokers {
    pub(crate) fn look() -> Self {
        let address = |variable| std::env::var(variable).ok().filter(|address| !address.is_empty());
        Self(ALL.into_iter().filter_map(|(broker, variable)| Some((broker, address(variable)?))).collect())
    }

    /// Returns whether all brokers that the case needs are available.
    pub(crate) fn has(&self, case: &Case) -> bool {
        match case.side {
            Side::Broker(broker, _) | Side::ByHandBroker(broker) => self.address(broker).is_some(),
            _ => true,
        }
    }

    pub(crate) fn address(&self, broker: Broker) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == broker).map(|(_, address)| address.as_str())
    }

    /// Returns the brokers that are not available.
    pub(crate) fn missing(&self) -> Vec<String> {
        let away = ALL.iter().filter(|(broker, _)| self.address(*broker).is_none());
        away.map(|(broker, variable)| format!("{broker:?}: {variable} is not set")).collect()
    }

    /// Returns the messages per second. The clock starts after a tenth of them.
    pub(crate) async fn run(
        &self,
        broker: Broker,
        store: &Postgres,
        how: (usize, usize),
        messages: Vec<Bytes>,
    ) -> Result<f64> {
        let address = self.address(broker).context("the broker's address is not set")?;
        let payloads: Vec<Vec<u8>> = messages.iter().map(|payload| payload.to_vec()).collect();
        let queue = Queue::new(messages);
        match broker {
            Broker::RabbitMq => run::<RabbitMq>(address, store, how, payloads, queue).await,
            Broker::Nats => run::<Nats>(address, store, how, payloads, queue).await,
            Broker::Kafka => run::<Kafka>(address, store, how, payloads, queue).await,
        }
    }
}

async fn run<B: Client>(
    address: &str,
    store: &Postgres,
    how: (usize, usize),
    payloads: Vec<Vec<u8>>,
    queue: Queue,
) -> Result<f64> {
    let client = B::connect(address, NAME).await?;
    client.create().await?;
    client.publish(&payloads).await?;
    let worker = worker_on(B::default_source(address, NAME).await?, store, how, queue.clone());
    let rate = worker::drive(worker, queue).await?;
    client.delete().await?;
    Ok(rate)
}

/// Returns a worker with these lanes and this batch size. The clock counts each message once: one that was stored in the
/// inbox when it has run, and a copy, as after a rebalance of Kafka, not at all.
pub(crate) fn worker_on<Src: Source>(
    source: Src,
    store: &Postgres,
    (lanes, batch): (usize, usize),
    settled: Queue,
) -> worker::WithHandlers<Postgres, Src> {
    Worker::new("bench", store.clone(), source).handler::<order_paid>().concurrency(lanes).batch(batch).observe(
        move |_, outcome| match outcome {
            Outcome::Scheduled { .. } => settled.store(),
            Outcome::Duplicate => {}
            _ => settled.ack(),
        },
    )
}
