//! A quorum queue, and publishing with confirms.

use anyhow::{Context, Result, ensure};
use idem::Source;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};

use super::{Broker, NAME, WINDOW};
use crate::plan::Order;

/// RabbitMQ.
pub(crate) struct RabbitMq {
    connection: Connection,
    channel: Channel,
}

impl Broker for RabbitMq {
    const COMMAND: &'static str = "rabbitmq";
    const VARIABLE: &'static str = "AMQP_URL";

    async fn new(address: &str) -> Result<Self> {
        let connect = Connection::connect(address, ConnectionProperties::default());
        let connection = connect.await.context("cannot connect to RabbitMQ")?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        channel.queue_delete(NAME.into(), QueueDeleteOptions::default()).await?;
        idem::RabbitMq::connect(address).await?.declare(NAME).await?;
        Ok(Self { connection, channel })
    }

    async fn publish(&self, orders: &[Order]) -> Result<()> {
        for window in orders.chunks(WINDOW) {
            let mut confirms = Vec::with_capacity(window.len());
            for order in window {
                let properties =
                    BasicProperties::default().with_delivery_mode(2).with_message_id(order.id.to_string().into());
                let options = BasicPublishOptions { mandatory: true, ..Default::default() };
                let payload = serde_json::to_vec(order)?;
                confirms.push(self.channel.basic_publish("".into(), NAME.into(), options, &payload, properties).await?);
            }
            for confirm in confirms {
                let confirm = confirm.await?;
                ensure!(confirm.is_ack() && confirm.take_message().is_none(), "the broker refused a message");
            }
        }
        Ok(())
    }

    /// Without those that a worker has: they are told only to who asks for them.
    async fn left(&self) -> Result<u64> {
        let options = QueueDeclareOptions { passive: true, ..Default::default() };
        Ok(self.channel.queue_declare(NAME.into(), options, FieldTable::default()).await?.message_count().into())
    }

    async fn delete(self) -> Result<()> {
        self.channel.queue_delete(NAME.into(), QueueDeleteOptions::default()).await?;
        self.connection.close(200, "done".into()).await?;
        Ok(())
    }

    async fn source(address: &str) -> Result<impl Source> {
        Ok(idem::RabbitMq::connect(address).await?.queue(NAME).await?)
    }
}
