//! The loop by hand from a real broker: the broker's own client, as its documentation shows it, and the baseline's
//! transaction.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use async_nats::jetstream::consumer::pull;
use bytes::Bytes;
use futures_util::StreamExt;
use idem_brokers::{Broker as Client, Kafka, Nats, RabbitMq};
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties};
use rdkafka::consumer::{Consumer as _, StreamConsumer};
use rdkafka::{ClientConfig, Message};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use uuid::Uuid;

use crate::by_hand::ByHand;
use crate::case::Broker;
use crate::queue::Queue;
use crate::steady::NAME;

const PATIENCE: Duration = Duration::from_secs(180);

/// Publishes the messages, then processes them, `lanes` at once; returns the messages per second.
pub(crate) async fn run(
    (broker, address): (Broker, &str),
    by_hand: &ByHand,
    lanes: usize,
    messages: Vec<Bytes>,
) -> Result<f64> {
    match broker {
        Broker::RabbitMq => from::<RabbitMq, Amqp>(address, by_hand, lanes, messages).await,
        Broker::Nats => from::<Nats, Stream>(address, by_hand, lanes, messages).await,
        Broker::Kafka => from::<Kafka, Topic>(address, by_hand, lanes, messages).await,
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
    queue.rate()
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

/// A consumer of a broker's client.
trait Consumer: Sized {
    /// Settles one delivery.
    type Ack: Send + 'static;

    /// Subscribes to an existing queue, stream or topic.
    async fn subscribe(address: &str, name: &str, concurrency: u16) -> Result<Self>;

    /// Returns the next delivery. Cancel safe.
    async fn next(&mut self) -> Result<(Bytes, Self::Ack)>;

    /// Acks a delivery whose transaction is committed.
    fn ack(ack: Self::Ack) -> impl Future<Output = Result<()>> + Send;
}

/// A consumer by lapin.
struct Amqp {
    deliveries: lapin::Consumer,
    // Closed when the value is dropped.
    _channel: Channel,
    _connection: Connection,
}

impl Consumer for Amqp {
    type Ack = lapin::Acker;

    async fn subscribe(address: &str, name: &str, concurrency: u16) -> Result<Self> {
        let connection = Connection::connect(address, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        channel.basic_qos(concurrency, BasicQosOptions::default()).await?;
        let consume =
            channel.basic_consume(name.into(), "".into(), BasicConsumeOptions::default(), FieldTable::default());
        Ok(Self { deliveries: consume.await?, _channel: channel, _connection: connection })
    }

    async fn next(&mut self) -> Result<(Bytes, lapin::Acker)> {
        let delivery = self.deliveries.next().await.context("RabbitMQ has ended the subscription")??;
        Ok((delivery.data.into(), delivery.acker))
    }

    async fn ack(ack: lapin::Acker) -> Result<()> {
        ack.ack(BasicAckOptions::default()).await?;
        Ok(())
    }
}

/// A pull consumer by async-nats, with its defaults.
struct Stream(pull::Stream);

impl Consumer for Stream {
    type Ack = async_nats::jetstream::message::Acker;

    async fn subscribe(address: &str, name: &str, _concurrency: u16) -> Result<Self> {
        let context = async_nats::jetstream::new(async_nats::connect(address).await?);
        let config = pull::Config { durable_name: Some(format!("{name}-by-hand")), ..pull::Config::default() };
        let consumer = context.get_stream(name).await?.create_consumer(config).await?;
        Ok(Self(consumer.messages().await?))
    }

    async fn next(&mut self) -> Result<(Bytes, Self::Ack)> {
        let (message, acker) = self.0.next().await.context("NATS has ended the subscription")??.split();
        Ok((message.payload, acker))
    }

    async fn ack(ack: Self::Ack) -> Result<()> {
        ack.ack().await.map_err(|error| anyhow!(error))
    }
}

/// A consumer by rdkafka, which commits what is finished.
struct Topic {
    name: Arc<str>,
    consumer: Arc<StreamConsumer>,
    unfinished: Unfinished,
}

/// The offsets in progress of each partition: only what lies before all of them may be committed.
type Unfinished = Arc<Mutex<HashMap<i32, Offsets>>>;

#[derive(Default)]
struct Offsets {
    in_progress: BTreeSet<i64>,
    last: i64,
}

impl Offsets {
    /// Finishes an offset. Returns the last one before which all are finished, itself included.
    fn finish(&mut self, offset: i64) -> i64 {
        self.in_progress.remove(&offset);
        self.in_progress.first().map_or(self.last, |first| first - 1)
    }
}

struct Offset {
    name: Arc<str>,
    consumer: Arc<StreamConsumer>,
    unfinished: Unfinished,
    partition: i32,
    offset: i64,
}

impl Consumer for Topic {
    type Ack = Offset;

    async fn subscribe(address: &str, name: &str, _concurrency: u16) -> Result<Self> {
        let consumer: StreamConsumer = ClientConfig::new()
            .set("bootstrap.servers", address)
            // Not the group of the worker, which may still be a member, and not one that has committed offsets.
            .set("group.id", format!("{name}-{}", Uuid::new_v4()))
            .set("auto.offset.reset", "earliest")
            .set("enable.auto.offset.store", "false")
            .create()?;
        consumer.subscribe(&[name])?;
        Ok(Self { name: name.into(), consumer: Arc::new(consumer), unfinished: Unfinished::default() })
    }

    async fn next(&mut self) -> Result<(Bytes, Offset)> {
        let message = self.consumer.recv().await?;
        let (partition, offset) = (message.partition(), message.offset());
        let payload = Bytes::copy_from_slice(message.payload().unwrap_or_default());
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        let offsets = unfinished.entry(partition).or_default();
        offsets.in_progress.insert(offset);
        offsets.last = offset;
        let (name, consumer, unfinished) = (self.name.clone(), self.consumer.clone(), self.unfinished.clone());
        Ok((payload, Offset { name, consumer, unfinished, partition, offset }))
    }

    async fn ack(ack: Offset) -> Result<()> {
        let mut unfinished = ack.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        let last = unfinished.entry(ack.partition).or_default().finish(ack.offset);
        // Stored under the lock, so that a lower one cannot overtake it.
        if last >= 0 {
            ack.consumer.store_offset(&ack.name, ack.partition, last)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_finished_when_all_before_it_are() {
        let mut offsets = Offsets { in_progress: (10..13).collect(), last: 12 };
        assert_eq!(offsets.finish(11), 9);
        assert_eq!(offsets.finish(10), 11);
        assert_eq!(offsets.finish(12), 12);
    }
}
