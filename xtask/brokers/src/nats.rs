//! A JetStream stream in a file, and publishing with acks.

use std::time::Duration;

use anyhow::{Context as _, Result};
use async_nats::jetstream::stream::Config;
use async_nats::jetstream::{self, Context};

use crate::{Broker, WINDOW};

/// A server whose disk is busy answers late, and nobody who publishes here tries again.
const PATIENCE: Duration = Duration::from_secs(60);

/// NATS JetStream.
#[derive(Debug)]
pub struct Nats {
    name: String,
    context: Context,
}

impl Broker for Nats {
    type Source = idem::nats::Stream;
    type Sink = idem::nats::JetStream;

    const NAME: &'static str = "nats";
    const VARIABLE: &'static str = "NATS_URL";
    const START: fn() -> Result<idem_services::Instance> = idem_services::Nats::start;

    async fn connect(address: &str, name: &str) -> Result<Self> {
        let mut context = jetstream::new(async_nats::connect(address).await.context("cannot connect to NATS")?);
        context.set_timeout(PATIENCE);
        Ok(Self { name: name.to_owned(), context })
    }

    async fn create_keeping(&self, kept: Duration) -> Result<()> {
        // The stream may not exist.
        let _ = self.delete().await;
        let config =
            Config { name: self.name.clone(), subjects: vec![self.name.clone()], max_age: kept, ..Config::default() };
        self.context.create_stream(config).await.context("cannot create the stream")?;
        Ok(())
    }

    async fn publish(&self, payloads: &[Vec<u8>]) -> Result<()> {
        for window in payloads.chunks(WINDOW) {
            let mut acks = Vec::with_capacity(window.len());
            for payload in window {
                acks.push(self.context.publish(self.name.clone(), payload.clone().into()).await?);
            }
            for ack in acks {
                ack.await?;
            }
        }
        Ok(())
    }

    /// Reads the stream, which keeps what is settled.
    async fn recorded(&self) -> Result<Vec<Vec<u8>>> {
        let stream = self.context.get_stream(&self.name).await?;
        let state = &stream.cached_info().state;
        let mut recorded = Vec::new();
        for sequence in state.first_sequence..=state.last_sequence {
            let message = stream.get_raw_message(sequence).await;
            recorded.push(message.with_context(|| format!("cannot read message {sequence}"))?.payload.to_vec());
        }
        Ok(recorded)
    }

    async fn left(&self) -> Result<u64> {
        let stream = self.context.get_stream(&self.name).await?;
        match stream.consumer_info(&self.name).await {
            Ok(info) => Ok(info.num_pending + info.num_ack_pending as u64),
            // No consumer exists yet.
            Err(_) => Ok(stream.cached_info().state.messages),
        }
    }

    async fn forget(&self) -> Result<bool> {
        self.context.delete_consumer_from_stream(&self.name, &self.name).await?;
        Ok(true)
    }

    async fn delete(&self) -> Result<()> {
        self.context.delete_stream(&self.name).await?;
        Ok(())
    }

    async fn source(address: &str, name: &str) -> Result<Self::Source> {
        Ok(idem::Nats::connect(address).await?.stream(name).await?.durable(name).ack_wait(Duration::from_secs(2)))
    }

    async fn sink(address: &str) -> Result<Self::Sink> {
        Ok(idem::Nats::connect(address).await?.jetstream(""))
    }
}
