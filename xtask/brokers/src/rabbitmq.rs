//! A quorum queue, and publishing with confirms.

use anyhow::{Context, Result, ensure};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};

use crate::{Broker, WINDOW};

/// RabbitMQ.
#[derive(Debug)]
pub struct RabbitMq {
    queue: String,
    channel: Channel,
    // Closed with the value, and the channel with it.
    _connection: Connection,
}

impl Broker for RabbitMq {
    type Source = idem::rabbitmq::Queue;

    const NAME: &'static str = "rabbitmq";
    const VARIABLE: &'static str = "AMQP_URL";

    async fn connect(address: &str, name: &str) -> Result<Self> {
        let connect = Connection::connect(address, ConnectionProperties::default());
        let connection = connect.await.context("cannot connect to RabbitMQ")?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(Self { queue: name.to_owned(), channel, _connection: connection })
    }

    async fn create(&self) -> Result<()> {
        self.delete().await?;
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        // It removes itself also after a test that failed.
        arguments.insert("x-expires".into(), AMQPValue::LongInt(3_600_000));
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        self.channel.queue_declare(self.queue.as_str().into(), options, arguments).await?;
        Ok(())
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
        let options = QueueDeclareOptions { passive: true, ..Default::default() };
        let queue = self.channel.queue_declare(self.queue.as_str().into(), options, FieldTable::default());
        Ok(queue.await?.message_count().into())
    }

    /// The queue itself, with its messages. One that is made again at once is not missed by its consumers, and delivers
    /// nothing to them (seen on 3.10).
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
}
