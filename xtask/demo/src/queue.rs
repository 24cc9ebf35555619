//! The queue, and publishing with confirms.

use anyhow::{Context, Result, ensure};
use idem::RabbitMq;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};

use crate::Servers;
use crate::plan::Order;

/// The queue's name. There is one demo at a time on a database, so that it need not be unique.
pub(crate) const QUEUE: &str = "idem-demo";

/// How many messages may be on their way without a confirm.
const WINDOW: usize = 500;

/// The queue, seen by a client beside the workers.
pub(crate) struct Queue {
    connection: Connection,
    channel: Channel,
}

impl Queue {
    /// An empty one. What an earlier demo has left is deleted.
    pub(crate) async fn new(servers: &Servers) -> Result<Self> {
        let connect = Connection::connect(&servers.broker, ConnectionProperties::default());
        let connection = connect.await.context("cannot connect to RabbitMQ")?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        channel.queue_delete(QUEUE.into(), QueueDeleteOptions::default()).await?;
        RabbitMq::connect(&servers.broker).await?.declare(QUEUE).await?;
        Ok(Self { connection, channel })
    }

    /// Publishes, and returns when the broker has confirmed each.
    pub(crate) async fn publish(&self, orders: &[Order]) -> Result<()> {
        for window in orders.chunks(WINDOW) {
            let mut confirms = Vec::with_capacity(window.len());
            for order in window {
                let properties =
                    BasicProperties::default().with_delivery_mode(2).with_message_id(order.id.to_string().into());
                let options = BasicPublishOptions { mandatory: true, ..Default::default() };
                let payload = serde_json::to_vec(order)?;
                confirms
                    .push(self.channel.basic_publish("".into(), QUEUE.into(), options, &payload, properties).await?);
            }
            for confirm in confirms {
                let confirm = confirm.await?;
                ensure!(confirm.is_ack() && confirm.take_message().is_none(), "the broker refused a message");
            }
        }
        Ok(())
    }

    /// How many messages wait for a worker.
    pub(crate) async fn ready(&self) -> Result<u32> {
        let options = QueueDeclareOptions { passive: true, ..Default::default() };
        Ok(self.channel.queue_declare(QUEUE.into(), options, FieldTable::default()).await?.message_count())
    }

    /// Removes it.
    pub(crate) async fn delete(self) -> Result<()> {
        self.channel.queue_delete(QUEUE.into(), QueueDeleteOptions::default()).await?;
        self.connection.close(200, "done".into()).await?;
        Ok(())
    }
}
