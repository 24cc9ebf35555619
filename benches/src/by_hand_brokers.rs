//! B from a real broker: the messages are published, then the loop by hand consumes them with the broker's own client.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use idem_brokers::{Broker as Client, Kafka, Nats, RabbitMq};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::brokers::{Brokers, NAME};
use crate::by_hand::ByHand;
use crate::case::Broker;
use crate::latency::consumer::Consumer;
use crate::latency::{kafka, nats, rabbitmq};
use crate::queue::Queue;

const PATIENCE: Duration = Duration::from_secs(180);

/// Processes the messages, `lanes` at once; returns the messages per second.
pub(crate) async fn run(
    brokers: &Brokers,
    broker: Broker,
    by_hand: &ByHand,
    lanes: usize,
    messages: Vec<Bytes>,
) -> Result<f64> {
    let address = brokers.address(broker).context("the broker's address is not set")?;
    match broker {
        Broker::RabbitMq => from::<RabbitMq, rabbitmq::Queue>(address, by_hand, lanes, messages).await,
        Broker::Nats => from::<Nats, nats::Stream>(address, by_hand, lanes, messages).await,
        Broker::Kafka => from::<Kafka, kafka::Topic>(address, by_hand, lanes, messages).await,
    }
}

async fn from<B: Client, C: Consumer>(
    address: &str,
    by_hand: &ByHand,
    lanes: usize,
    messages: Vec<Bytes>,
) -> Result<f64> {
    let client = B::connect(address, NAME).await?;
    client.create().await?;
    let payloads: Vec<Vec<u8>> = messages.iter().map(|payload| payload.to_vec()).collect();
    client.publish(&payloads).await?;
    let queue = Queue::new(messages);
    let consumer = C::subscribe(address, NAME, u16::try_from(lanes)?).await?;
    let consumed = timeout(PATIENCE, consume(consumer, by_hand, lanes, &queue)).await;
    consumed.with_context(|| format!("the loop left {} messages within {PATIENCE:?}", queue.left()))??;
    client.delete().await?;
    queue.rate().context("the loop ended before its queue was empty")
}

async fn consume<C: Consumer>(mut consumer: C, by_hand: &ByHand, lanes: usize, queue: &Queue) -> Result<()> {
    let room = Arc::new(Semaphore::new(lanes));
    let mut tasks = JoinSet::new();
    loop {
        let permit = room.clone().acquire_owned().await?;
        let (payload, ack) = tokio::select! {
            () = queue.emptied() => break,
            next = consumer.next() => next?,
        };
        let (by_hand, queue) = (by_hand.clone(), queue.clone());
        tasks.spawn(async move {
            by_hand.process(&payload).await?;
            C::ack(ack).await?;
            queue.ack();
            drop(permit);
            anyhow::Ok(())
        });
        while let Some(processed) = tasks.try_join_next() {
            processed??;
        }
    }
    while let Some(processed) = tasks.join_next().await {
        processed??;
    }
    Ok(())
}
