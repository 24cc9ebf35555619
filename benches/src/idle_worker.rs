//! A worker that has nothing to do: its transactions per second, and its processor time.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use idem::{Postgres, Source, Worker};
use idem_brokers::Broker as Client;
use sqlx::{Connection, PgConnection};
use tokio::time::sleep;

use crate::machine::{cpu, describe, load};
use crate::message::{self, SCHEMA, order_paid};
use crate::options::Idle;
use crate::plan::on_broker;
use crate::queue::{Deliveries, Queue};
use crate::servers::Servers;

/// Transactions per second. All statements of an idle worker are transactions of their own.
const TRANSACTIONS: f64 = 2.0;
/// Percent of a core.
const PROCESSOR: f64 = 0.1;

/// How long after its start a worker is measured: by then it has connected and prepared its statements, and sessions have
/// reported that, which they delay by up to ten seconds (`PGSTAT_IDLE_INTERVAL`).
const SETTLE: Duration = Duration::from_secs(15);

/// The name of the queue, stream or topic.
const NAME: &str = "idem-bench-idle";

/// Measures and prints the results. Returns 0 if all targets are reached, 1 if one is not.
pub(crate) async fn measure(servers: &Servers, options: &Idle) -> Result<u8> {
    ensure!(servers.owns_database, "transactions of other users would count: unset DATABASE_URL");
    let url = &servers.database;
    let mut conn = PgConnection::connect(url).await?;
    message::tables(&mut conn).await?;
    println!("command     cargo xtask bench idle (release build)\n{}", describe(&mut conn).await?);
    println!(
        "\nA worker with `.inbox()` on PostgreSQL and no message, {} s each. Transactions are those of the database\n\
         (pg_stat_database), the few of autovacuum included; the processor time is that of this process (getrusage).\n",
        options.seconds
    );
    println!("{:12} {:>24} {:>24}", "source", "transactions per second", "processor, % of a core");
    println!("{:12} {:>24} {:>24}", "target", format!("at most {TRANSACTIONS}"), format!("at most {PROCESSOR}"));
    let mut missed = false;
    let mut print = |source: String, [transactions, processor]: [f64; 2]| {
        let above = transactions > TRANSACTIONS || processor > PROCESSOR;
        let verdict = if above { "missed" } else { "reached" };
        println!("{source:12} {transactions:>24.2} {processor:>24.3}  {verdict}");
        missed |= above;
    };
    let memory = Deliveries::of(&Queue::new(Vec::new()));
    print("memory".to_owned(), rest(url, memory, options.seconds, &mut conn).await?);
    for broker in &options.broker {
        let address = servers.address(*broker)?;
        let used = on_broker!(*broker, B => on::<B>(address, url, options.seconds, &mut conn).await)?;
        print(broker.to_string(), used);
    }
    println!("\nload        {} at the end", load());
    Ok(u8::from(missed))
}

async fn on<B: Client>(address: &str, url: &str, seconds: f64, conn: &mut PgConnection) -> Result<[f64; 2]> {
    let client = B::connect(address, NAME).await?;
    client.create().await?;
    // Its connection would take processor time.
    drop(client);
    let used = rest(url, B::source(address, NAME).await?, seconds, conn).await?;
    B::connect(address, NAME).await?.delete().await?;
    Ok(used)
}

/// Runs an idle worker on this source. Returns its transactions per second, and its processor time in percent of a core.
async fn rest(url: &str, source: impl Source, seconds: f64, conn: &mut PgConnection) -> Result<[f64; 2]> {
    let store = Postgres::options(url).schema(SCHEMA).connect().await?;
    let worker = Worker::new("bench", store, source).handler::<order_paid>().inbox();
    let mut used = None;
    let measured = async {
        sleep(SETTLE).await;
        let before = look(conn).await;
        sleep(Duration::from_secs_f64(seconds)).await;
        used = Some((before, look(conn).await));
    };
    worker.run_until(measured).await?;
    let (before, after) = used.context("the worker ended before it was measured")?;
    let ([transactions, spent], [transactions_after, spent_after]) = (before?, after?);
    // The first look is a transaction itself.
    Ok([(transactions_after - transactions - 1.0) / seconds, (spent_after - spent) * 100.0 / seconds])
}

/// Returns the transactions of the database and the processor seconds of this process so far.
async fn look(conn: &mut PgConnection) -> Result<[f64; 2]> {
    let text = "SELECT (xact_commit + xact_rollback)::float8 FROM pg_stat_database WHERE datname = current_database()";
    Ok([sqlx::query_scalar(text).fetch_one(conn).await?, cpu(false)?.as_secs_f64()])
}
