//! A consumer by lapin.

use anyhow::{Context, Result};
use bytes::Bytes;
use futures_util::StreamExt;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties};

use super::consumer::Consumer;

pub(crate) struct Queue {
    deliveries: lapin::Consumer,
    // Closed when the value is dropped.
    _channel: Channel,
    _connection: Connection,
}

impl Consumer for Queue {
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
