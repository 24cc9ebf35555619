//! A worker at half of the load that it can take, with copies and failures: what grows, and what is lost.
//!
//! | file | contents |
//! |---|---|
//! | `worker` | the worker, which is a separate process, and its memory, seen from outside |
//! | `publisher` | publishes the messages, with their copies |
//! | `verdict` | what is measured each minute, the growth over the run, and what is reached |

mod publisher;
mod verdict;
mod worker;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, ensure};
use idem_brokers::Broker as Client;
use sqlx::{Connection, PgConnection};
use tokio::sync::watch;
use tokio::time::{interval, sleep, timeout};

use self::publisher::Pace;
use self::verdict::{Minute, SAMPLE_INTERVAL, Verdict};
use self::worker::{KEPT, NAME, Process, SCHEMA};
use crate::machine::{describe, load};
use crate::message;
use crate::options::Soak;
use crate::plan::on_broker;
use crate::servers::Servers;
use crate::tables::run;

pub(crate) use self::worker::work;

/// How long the worker may take for the messages that are left at the end. A message that fails twice waits up to 12
/// seconds.
const REST: Duration = Duration::from_secs(180);

/// Runs the soak and prints its lines. Returns 0 if all targets are reached, 1 if one is not, 2 if the run was too
/// short.
pub(crate) async fn measure(servers: &Servers, options: &Soak) -> Result<u8> {
    let address = servers.address(options.broker)?;
    on_broker!(options.broker, B => on::<B>(&servers.database, address, options).await)
}

async fn on<B: Client>(url: &str, address: &str, options: &Soak) -> Result<u8> {
    let mut conn = PgConnection::connect(url).await?;
    message::tables(&mut conn).await?;
    run(&mut conn, format!("DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")).await?;
    let client = B::connect(address, NAME).await?;
    client.create_keeping(KEPT).await?;
    println!("command     cargo xtask soak (release build)\n{}", describe(&mut conn).await?);
    println!("worker      one message per transaction from {}, claims kept for six minutes\n", options.broker);
    println!("{}", Minute::heading());

    let worker = Process::start(options.broker, url, address)?;
    let (pace, paced) = watch::channel(Pace::Backlog);
    let published = AtomicU64::new(0);
    let publish = publisher::run(&client, paced, &published, || worker.processed());
    let watched = async {
        let minutes = watched(&mut conn, &worker, &pace, options.minutes).await;
        pace.send_replace(Pace::Stopped);
        minutes
    };
    let ((), minutes) = tokio::try_join!(publish, watched)?;

    let published = published.load(Relaxed);
    let emptied = timeout(REST, async {
        while worker.processed() < published {
            sleep(Duration::from_millis(100)).await;
        }
    });
    let left = emptied.await.is_err();
    worker.end().await?;
    if left {
        println!("The worker has not processed all messages within {REST:?}.");
    }
    let verdict = verdict(&mut conn, &minutes, published).await?;
    client.delete().await?;
    println!("{verdict}\nload        {} at the end", load());
    Ok(verdict.code())
}

/// Measures the minutes. In the first one, the worker gets all that it can take; from then on, half of that.
async fn watched(
    conn: &mut PgConnection,
    worker: &Process,
    pace: &watch::Sender<Pace>,
    count: u64,
) -> Result<Vec<Minute>> {
    let mut ticks = interval(SAMPLE_INTERVAL);
    ticks.tick().await;
    let mut minutes = Vec::new();
    for number in 1..=count {
        let minute = Minute::measure(&mut ticks, worker, conn).await?;
        println!("{number:>6} {minute}");
        if number == 1 {
            ensure!(minute.rate > 0.0, "the worker has processed nothing in its first minute");
            pace.send_replace(Pace::Rate(minute.rate / 2.0));
            println!("       that is what it can take; now half of it");
        }
        minutes.push(minute);
    }
    Ok(minutes)
}

/// Compares the effects with the published messages.
async fn verdict(conn: &mut PgConnection, minutes: &[Minute], published: u64) -> Result<Verdict> {
    let text = "SELECT count(*), count(DISTINCT order_id) FROM idem_bench.effects";
    let (effects, distinct): (i64, i64) = sqlx::query_as(text).fetch_one(&mut *conn).await?;
    let dead = format!("SELECT count(*) FROM {SCHEMA}.inbox_messages WHERE state = 'dead'");
    let dead: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(dead)).fetch_one(&mut *conn).await?;
    println!("{published} messages were published, beside their copies: {effects} effects, {dead} dead letters");
    Ok(Verdict::new(minutes, published as i64 - distinct, effects - distinct))
}
