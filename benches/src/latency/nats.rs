//! A pull consumer by async-nats, with its defaults.

use anyhow::{Context, Result, anyhow};
use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::message::Acker;
use bytes::Bytes;
use futures_util::StreamExt;

use super::consumer::Consumer;

pub(crate) struct Stream(pull::Stream);

impl Consumer for Stream {
    type Ack = Acker;

    async fn subscribe(address: &str, name: &str, _concurrency: u16) -> Result<Self> {
        let context = async_nats::jetstream::new(async_nats::connect(address).await?);
        let config = pull::Config { durable_name: Some(format!("{name}-by-hand")), ..pull::Config::default() };
        let consumer = context.get_stream(name).await?.create_consumer(config).await?;
        Ok(Self(consumer.messages().await?))
    }

    async fn next(&mut self) -> Result<(Bytes, Acker)> {
        let (message, acker) = self.0.next().await.context("NATS has ended the subscription")??.split();
        Ok((message.payload, acker))
    }

    async fn ack(ack: Acker) -> Result<()> {
        ack.ack().await.map_err(|error| anyhow!(error))
    }
}
