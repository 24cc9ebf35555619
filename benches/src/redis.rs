//! Redis: a worker with one message at a time, compared to the same with PostgreSQL, and to a loop that calls the same scripts.
//!
//! Redis syncs its file each second, as people run it, and for one number always, as PostgreSQL does: then each of the two round
//! trips of a message waits for the disk.

use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use idem::Fingerprint;
use idem::key_value::{Acquired, Completed, Id, KeyValue, KeyValueStore};
use idem::prelude::*;
use idem::redis::RedisWrites;
use sqlx::{Connection, PgConnection};
use tokio::task::spawn_blocking;
use uuid::Uuid;

use crate::message::{self, OrderPaid, SCHEMA};
use crate::plan::Work;
use crate::queue::{Deliveries, Queue};
use crate::samples::{median, range};
use crate::worker::{Handler, How};

const ROUNDS: usize = 7;
const MESSAGES: usize = 20_000;
/// Fewer, where each waits for the disk.
const FEW: usize = 4_000;
/// How many messages are processed at once, and many more.
const AT_ONCE: usize = 16;
const MANY: usize = 256;

/// What has to be reached: the rate of PostgreSQL so many times; of the loop so much; and with many at once so many a second.
const OVER_POSTGRES: f64 = 3.0;
const OF_LOOP: f64 = 0.9;
const PER_SECOND: f64 = 30_000.0;

/// As a worker's by default.
const LEASE: Duration = Duration::from_secs(10);
const KEEP: Duration = Duration::from_secs(7 * 24 * 3600);

/// The same effect on both sides.
fn effect(event: &OrderPaid, writes: &mut RedisWrites) {
    writes.r_push("effects", event.order_id.to_string());
}

#[idempotent(key = "event_id", name = "order_paid")]
async fn paid(event: OrderPaid, writes: &mut RedisWrites) -> Result<(), BoxError> {
    effect(&event, writes);
    Ok(())
}

/// Measures and prints the results, and returns 0 if the targets are reached, else 1.
pub(crate) async fn measure(database: &str) -> Result<u8> {
    let server = spawn_blocking(idem_services::Redis::start).await??;
    let mut client = ::redis::Client::open(server.url())?.get_multiplexed_async_connection().await?;
    let redis = Redis::connect(server.url()).await?;
    let mut conn = PgConnection::connect(database).await?;
    message::tables(&mut conn).await?;
    let postgres = Postgres::options(database).schema(SCHEMA).connections(AT_ONCE).connect().await?;
    let how = How { lanes: AT_ONCE, batch: 1, handler: Handler::Of(Work::Fresh), inbox: false };

    let [mut sql, mut few, mut by_hand, mut many, mut durable] = [const { Vec::new() }; 5];
    let mut trips = 0.0;
    // The first round warms up.
    for round in 0..=ROUNDS {
        sync(&mut client, "everysec").await?;
        let ours = run(&redis, AT_ONCE, MESSAGES, &mut client).await?;
        let theirs = hand_written(&redis, &mut client).await?;
        let most = run(&redis, MANY, MESSAGES, &mut client).await?;
        let rate = how.run(&postgres, message::fresh(FEW)?).await?;
        sync(&mut client, "always").await?;
        let always = run(&redis, AT_ONCE, FEW, &mut client).await?;
        if round > 0 {
            sql.push(rate);
            few.push(ours.0);
            by_hand.push(theirs);
            many.push(most.0);
            durable.push(always.0);
            trips = ours.1;
        }
    }
    let ratio = |of: &[f64], to: &[f64]| of.iter().zip(to).map(|(of, to)| of / to).collect::<Vec<f64>>();
    let (over, of, always) = (ratio(&few, &sql), ratio(&few, &by_hand), ratio(&durable, &sql));
    let ((low, high), (least, most)) = (range(over.iter().copied()), range(of.iter().copied()));
    let (over, of, many, always) = (median(over), median(of), median(many), median(always));
    println!(
        "Redis, {AT_ONCE} at once: {:.0} messages a second, median of {ROUNDS} rounds, {trips:.2} round trips a message; {over:.1} of \
         PostgreSQL ({low:.1} to {high:.1}), and the target {OVER_POSTGRES}; {of:.2} of a loop with the same scripts ({least:.2} to \
         {most:.2}), and the target {OF_LOOP}; {MANY} at once: {many:.0}, and the target {PER_SECOND:.0}; with appendfsync always, \
         {AT_ONCE} at once: {:.0}, {always:.1} of PostgreSQL",
        median(few),
        median(durable)
    );
    Ok(u8::from(over < OVER_POSTGRES || of < OF_LOOP || many < PER_SECOND))
}

/// Processes new messages. Returns how many per second, and the round trips of each.
async fn run(
    redis: &KeyValue<Redis>,
    at_once: usize,
    messages: usize,
    client: &mut MultiplexedConnection,
) -> Result<(f64, f64)> {
    empty(client).await?;
    let queue = Queue::new(message::fresh(messages)?);
    let worker = Worker::new("bench", redis.clone(), Deliveries::of(&queue)).handler::<paid>().concurrency(at_once);
    let emptied = queue.clone();
    worker.run_until(async move { emptied.emptied().await }).await?;
    let trips = calls(client).await?;
    applied(messages, client).await?;
    Ok((queue.rate()?, trips / messages as f64))
}

/// Processes new messages by a loop without lanes, parking, renewal and observation.
async fn hand_written(redis: &KeyValue<Redis>, client: &mut MultiplexedConnection) -> Result<f64> {
    empty(client).await?;
    let (store, consumer) = (redis.store().clone(), Arc::<str>::from("bench"));
    let process = move |payload: Bytes| {
        let (store, consumer) = (store.clone(), consumer.clone());
        async move { process(&store, consumer, &payload).await }
    };
    let rate = Queue::new(message::fresh(MESSAGES)?).process(AT_ONCE, process).await?;
    applied(MESSAGES, client).await?;
    Ok(rate)
}

async fn process(store: &Redis, consumer: Arc<str>, payload: &[u8]) -> Result<()> {
    let event: OrderPaid = serde_json::from_slice(payload)?;
    let (fingerprint, token) = (Fingerprint::of(payload), Uuid::new_v4());
    let id = Id { consumer, handler: "order_paid".into(), key: Key::of(&event.event_id)?, apart: None };
    let acquired = store.acquire(&id, fingerprint, token, LEASE, KEEP).await.context("acquire")?;
    ensure!(matches!(acquired, Acquired::New { .. }), "a new message is {acquired:?}");
    let mut writes = RedisWrites::default();
    effect(&event, &mut writes);
    let completed = store.complete(&id, token, KEEP, &writes).await.context("complete")?;
    ensure!(completed == Completed::Yes, "a new message is {completed:?}");
    Ok(())
}

/// Sets when Redis writes its file to the disk.
async fn sync(client: &mut MultiplexedConnection, when: &str) -> Result<()> {
    ::redis::cmd("CONFIG").arg("SET").arg("appendfsync").arg(when).query_async::<()>(client).await?;
    Ok(())
}

/// Removes all records and effects, and what was counted.
async fn empty(client: &mut MultiplexedConnection) -> Result<()> {
    for command in [&["FLUSHALL"][..], &["CONFIG", "RESETSTAT"]] {
        let (name, rest) = command.split_first().context("it has a name")?;
        ::redis::cmd(name).arg(rest).query_async::<()>(client).await?;
    }
    Ok(())
}

/// Checks that each message has its effect.
async fn applied(messages: usize, client: &mut MultiplexedConnection) -> Result<()> {
    let effects: usize = ::redis::cmd("LLEN").arg("effects").query_async(client).await?;
    ensure!(effects == messages, "{messages} messages have {effects} effects");
    Ok(())
}

/// Returns how many scripts were called.
async fn calls(client: &mut MultiplexedConnection) -> Result<f64> {
    let info: String = ::redis::cmd("INFO").arg("commandstats").query_async(client).await?;
    let calls = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next());
    Ok(calls.context("no script was called")?.parse()?)
}
