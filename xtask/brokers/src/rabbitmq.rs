//! A quorum queue, and publishing with confirms.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::StreamExt;
use lapin::options::{
    BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions,
    QueueDeclareOptions, QueueDeleteOptions,
};

use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::{Broker, WINDOW};

/// Longer than any response of a reachable broker.
const PATIENCE: Duration = Duration::from_secs(30);

/// RabbitMQ.
#[derive(Debug)]
pub struct RabbitMq {
    queue: String,
    channel: Channel,
    /// Whether a queue has a delivery limit unless it is set to -1. Before 4.0, -1 would allow no redelivery.
    limits: bool,
    // Closed when the value is dropped, and the channel with it.
    _connection: Connection,
}

impl RabbitMq {
    /// The queue that gets each message as well, and that has no consumer.
    fn record(&self) -> String {
        format!("{}-record", self.queue)
    }

    /// Declares a quorum queue.
    async fn declare(&self, queue: &str) -> Result<()> {
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        if self.limits {
            arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(-1));
        }
        // idem refuses to consume a queue that expires.
        if queue != self.queue {
            arguments.insert("x-expires".into(), AMQPValue::LongInt(3_600_000));
        }
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        self.channel.queue_declare(queue.into(), options, arguments).await?;
        Ok(())
    }

    /// The number of messages that no consumer holds.
    ///
    /// RabbitMQ answers 0 as well if the leader of the queue takes longer than 250 ms (`rabbit_quorum_queue:stat/2`), so
    /// that 0 counts only if it is the answer three times.
    async fn ready(&self, queue: &str) -> Result<u64> {
        for _ in 0..2 {
            match self.count(queue).await? {
                0 => tokio::time::sleep(Duration::from_millis(100)).await,
                left => return Ok(left),
            }
        }
        self.count(queue).await
    }

    async fn count(&self, queue: &str) -> Result<u64> {
        let options = QueueDeclareOptions { passive: true, ..Default::default() };
        let queue = self.channel.queue_declare(queue.into(), options, FieldTable::default());
        Ok(queue.await?.message_count().into())
    }
}

impl Broker for RabbitMq {
    type Source = idem::rabbitmq::Queue;
    type Sink = idem::rabbitmq::Exchange;

    const NAME: &'static str = "rabbitmq";
    const VARIABLE: &'static str = "AMQP_URL";
    const START: fn() -> Result<idem_services::Instance> = idem_services::RabbitMq::start;

    async fn connect(address: &str, name: &str) -> Result<Self> {
        let connect = Connection::connect(address, ConnectionProperties::default());
        let connection = connect.await.context("cannot connect to RabbitMQ")?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let limits = major(address).await.context("RabbitMQ does not say its version")? >= 4;
        Ok(Self { queue: name.to_owned(), channel, limits, _connection: connection })
    }

    async fn create_keeping(&self, _kept: Duration) -> Result<()> {
        self.delete().await?;
        self.declare(&self.queue).await
    }

    /// Creates an exchange of the same name, and a second queue.
    async fn create_recording(&self) -> Result<()> {
        self.create().await?;
        let (queue, record) = (self.queue.as_str(), self.record());
        self.channel.queue_delete(record.as_str().into(), QueueDeleteOptions::default()).await?;
        self.declare(&record).await?;
        let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
        self.channel.exchange_declare(queue.into(), ExchangeKind::Direct, options, FieldTable::default()).await?;
        for bound in [queue, &record] {
            let options = QueueBindOptions::default();
            self.channel.queue_bind(bound.into(), queue.into(), queue.into(), options, FieldTable::default()).await?;
        }
        Ok(())
    }

    /// Empties the second queue.
    async fn recorded(&self) -> Result<Vec<Vec<u8>>> {
        let (record, mut recorded) = (self.record(), Vec::new());
        let left = self.ready(&record).await?;
        let options = BasicConsumeOptions { no_ack: true, ..Default::default() };
        let consumer = self.channel.basic_consume(record.as_str().into(), "".into(), options, FieldTable::default());
        let mut consumer = consumer.await?;
        while (recorded.len() as u64) < left {
            let next = timeout(PATIENCE, consumer.next()).await.context("a queue is not read to its end")?;
            recorded.push(next.context("the consumer ended")??.data.clone());
        }
        Ok(recorded)
    }

    async fn publish(&self, payloads: &[Vec<u8>]) -> Result<()> {
        for window in payloads.chunks(WINDOW) {
            let mut confirms = Vec::with_capacity(window.len());
            for payload in window {
                let options = BasicPublishOptions { mandatory: true, ..Default::default() };
                let (queue, properties) =
                    (self.queue.as_str().into(), BasicProperties::default().with_delivery_mode(2));
                confirms.push(self.channel.basic_publish("".into(), queue, options, payload, properties).await?);
            }
            for confirm in confirms {
                let confirm = confirm.await?;
                ensure!(confirm.is_ack() && confirm.take_message().is_none(), "RabbitMQ refused a message");
            }
        }
        Ok(())
    }

    async fn left(&self) -> Result<u64> {
        self.ready(&self.queue).await
    }

    /// Forgets the queue itself, with its messages. If a queue is recreated immediately, its consumers do not notice
    /// the deletion and receive nothing (seen on 3.10).
    async fn forget(&self) -> Result<bool> {
        self.delete().await?;
        Ok(true)
    }

    async fn restore(&self) -> Result<()> {
        self.create().await
    }

    async fn delete(&self) -> Result<()> {
        self.channel.queue_delete(self.queue.as_str().into(), QueueDeleteOptions::default()).await?;
        Ok(())
    }

    async fn source(address: &str, name: &str) -> Result<Self::Source> {
        Ok(idem::RabbitMq::connect(address).await?.queue(name).await?)
    }

    async fn sink(address: &str) -> Result<Self::Sink> {
        Ok(idem::RabbitMq::connect(address).await?.exchange(""))
    }

    async fn recording_sink(address: &str, name: &str) -> Result<Self::Sink> {
        Ok(idem::RabbitMq::connect(address).await?.exchange(name))
    }
}

/// Reads the major version of the server from its first frame, which lapin does not expose.
async fn major(address: &str) -> Result<u32> {
    let rest = address.split_once("://").context("no URL")?.1;
    let authority = rest.split('/').next().and_then(|authority| authority.rsplit('@').next()).context("no host")?;
    let mut server = TcpStream::connect(authority).await?;
    server.write_all(b"AMQP\x00\x00\x09\x01").await?;
    let mut head = [0; 7];
    server.read_exact(&mut head).await?;
    let [.., a, b, c, d] = head;
    let mut start = vec![0; usize::try_from(u32::from_be_bytes([a, b, c, d]))?];
    server.read_exact(&mut start).await?;
    // The type and the length of the value follow its name.
    let name = b"\x07versionS";
    let at = start.windows(name.len()).position(|bytes| bytes == name).context("no version")? + name.len() + 4;
    let digits: Vec<u8> = start[at..].iter().copied().take_while(u8::is_ascii_digit).collect();
    Ok(String::from_utf8(digits)?.parse()?)
}
