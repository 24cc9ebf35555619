//! The processes that are killed: a worker as a user writes it, and the loop with `SET NX` as people write it.

use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use anyhow::{Context, Result};
use clap::ValueEnum;
use idem::adapter::{Acker, SubscribeOptions};
use idem::prelude::*;
use idem::redis::RedisWrites;
use idem_brokers::Broker;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::worker::end_of_input;

/// The stream.
pub(super) const NAME: &str = "idem-demo-redis";
/// The variable with the address of Redis.
pub(super) const REDIS: &str = "REDIS_URL";
/// A hash with the number of effects of each event.
pub(super) const EFFECTS: &str = "effects";

/// How many messages a process has in hand.
const AT_ONCE: u16 = 16;

/// What consumes the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Consumer {
    Idem,
    SetNx,
}

/// A message.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Event {
    pub(super) key: String,
    pub(super) number: u64,
}

/// Consumes until the standard input ends.
pub(crate) async fn run(consumer: Consumer) -> Result<()> {
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    let read = |name| std::env::var(name).with_context(|| format!("{name} is not set: run cargo xtask demo"));
    let (url, broker) = (read(REDIS)?, read(idem_brokers::Nats::VARIABLE)?);
    let source = idem_brokers::Nats::source(&broker, NAME).await?;
    let mut over = end_of_input();
    let ended = async move { _ = over.wait_for(|over| *over).await };
    match consumer {
        Consumer::Idem => {
            let worker = Worker::new("demo", Redis::connect(&url).await?, source).handler::<count>();
            // Short, so that what takes many seconds in production takes one here.
            let worker = worker.concurrency(AT_ONCE.into()).lease_duration(Duration::from_secs(1));
            Ok(worker.run_until(ended).await?)
        }
        Consumer::SetNx => {
            let connection = ::redis::Client::open(url)?.get_multiplexed_async_connection().await?;
            tokio::select! {
                ended = set_nx(connection, source) => ended,
                () = ended => Ok(()),
            }
        }
    }
}

#[idempotent(key = "key", name = "count")]
async fn count(event: Event, writes: &mut RedisWrites) -> Result<(), BoxError> {
    pause().await;
    writes.h_incr_by(EFFECTS, event.number.to_string(), 1);
    Ok(())
}

/// Some of the time in which a process may be killed.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(..3))).await;
}

/// Whoever sets the key first has the message, and applies its effect; everybody acks it.
async fn set_nx(connection: MultiplexedConnection, mut source: impl idem::Source) -> Result<()> {
    source.subscribe(SubscribeOptions::new("demo", AT_ONCE)).await.map_err(anyhow::Error::from_boxed)?;
    let at_once = Arc::new(Semaphore::new(AT_ONCE.into()));
    loop {
        let permit = at_once.clone().acquire_owned().await?;
        let (delivery, acker) = source.next().await.map_err(anyhow::Error::from_boxed)?;
        let mut connection = connection.clone();
        tokio::spawn(async move {
            let _permit = permit;
            match process(&mut connection, delivery.payload()).await {
                Ok(()) => drop(acker.ack().await),
                Err(error) => eprintln!("a message has failed: {error:#}"),
            }
        });
    }
}

async fn process(connection: &mut MultiplexedConnection, payload: &[u8]) -> Result<()> {
    let event: Event = serde_json::from_slice(payload)?;
    let mut set = ::redis::cmd("SET");
    set.arg(format!("seen:{}", event.key)).arg(1).arg("NX").arg("EX").arg(24 * 3600);
    let is_first: Option<String> = set.query_async(connection).await?;
    if is_first.is_some() {
        pause().await;
        let mut count = ::redis::cmd("HINCRBY");
        let _: i64 = count.arg(EFFECTS).arg(event.number).arg(1).query_async(connection).await?;
    }
    Ok(())
}
