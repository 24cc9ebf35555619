//! backbone-outbox as a relay: `relay::drain_once`, whose closure publishes to RabbitMQ with confirms.
//!
//! It calls the closure for one message at a time, and marks each by an UPDATE that is a transaction of its own. It
//! locks no row, so two relays would each publish all messages. Before the clock starts, the messages are staged.

use anyhow::{Context, Result, ensure};
use backbone_outbox::{OutboxError, OutboxRecord, outbox, relay};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use peer_load::{Clock, Load};
use serde_json::Value;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use sqlx::types::Uuid;
use sqlx::types::chrono::Utc;

const SCHEMA: &str = "idem_bench_peer";

/// The benchmark creates it.
const QUEUE: &str = "idem-bench-relay";

/// The bytes of a payload, as on all sides.
const SIZE: usize = 200;

/// The messages of a transaction that stages.
const CHUNK: usize = 1000;

/// The messages of a read: as many as a relay of idem has unconfirmed.
const BATCH: i64 = 500;

const PUBLISHED: &str = "SELECT count(*) FROM idem_bench_peer.outbox_events WHERE published_at IS NOT NULL";

#[tokio::main]
async fn main() -> Result<()> {
    let load = Load::from_args()?;
    let broker = std::env::var("AMQP_URL").context("AMQP_URL is not set")?;
    let pool = PgPoolOptions::new().min_connections(2).test_before_acquire(false).connect(&load.url).await?;
    sqlx::query("CREATE SCHEMA IF NOT EXISTS idem_bench_peer").execute(&pool).await?;
    outbox::migrate(&pool, SCHEMA).await?;
    stage(&pool, load.messages).await?;
    // Otherwise its first reads would have the plans of an empty table.
    sqlx::raw_sql("ANALYZE idem_bench_peer.outbox_events").execute(&pool).await?;
    let connection = Connection::connect(&broker, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let clock = Clock::new(load.messages);
    let send = |record: OutboxRecord| publish(channel.clone(), clock.clone(), record);
    while relay::drain_once(&pool, SCHEMA, BATCH, &send).await? > 0 {}
    clock.print(sqlx::query_scalar(PUBLISHED).fetch_one(&pool).await?)
}

/// Stages the messages, each with a later time than the one before: the relay reads them in that order.
async fn stage(pool: &PgPool, messages: usize) -> Result<()> {
    for first in (0..messages).step_by(CHUNK) {
        let mut tx = pool.begin().await?;
        for number in first..messages.min(first + CHUNK) {
            let (order, payload) = (number.to_string(), payload(number));
            let record = OutboxRecord::new("OrderPaid", "Order", order, Uuid::nil(), payload, Utc::now());
            outbox::stage(&mut *tx, SCHEMA, &record).await?;
        }
        tx.commit().await?;
    }
    Ok(())
}

/// Returns a string of JSON, whose quotes count.
fn payload(number: usize) -> Value {
    Value::String(format!("{number:.<width$}", width = SIZE - 2))
}

async fn publish(channel: Channel, clock: Clock, record: OutboxRecord) -> Result<(), OutboxError> {
    confirmed(&channel, &record).await.map_err(|error| OutboxError::Publish(format!("{error:#}")))?;
    clock.done();
    Ok(())
}

/// Publishes with the durability of all sides: a persistent message, which comes back if no queue takes it.
async fn confirmed(channel: &Channel, record: &OutboxRecord) -> Result<()> {
    let options = BasicPublishOptions { mandatory: true, ..Default::default() };
    let properties = BasicProperties::default().with_delivery_mode(2).with_message_id(record.id.to_string().into());
    let payload = serde_json::to_vec(&record.payload)?;
    let confirm = channel.basic_publish("".into(), QUEUE.into(), options, &payload, properties).await?.await?;
    ensure!(confirm.is_ack() && confirm.take_message().is_none(), "RabbitMQ refused a message");
    Ok(())
}
