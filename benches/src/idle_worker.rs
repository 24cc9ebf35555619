//! A worker that has nothing to do: its statements per second, and its processor time.

use std::time::Duration;

use anyhow::{Context, Result};
use idem::{Postgres, Source, Worker};
use idem_brokers::{Broker as Client, Kafka, Nats, RabbitMq};
use sqlx::{Connection, PgConnection};
use tokio::time::sleep;

use crate::brokers::Brokers;
use crate::case::Broker;
use crate::machine::{Machine, load};
use crate::message::{self, SCHEMA, order_paid};
use crate::options::{Idle, IdleSource};
use crate::queue::{Deliveries, Queue};
use crate::single::cpu;
use crate::wire::Relay;

/// Statements per second.
const STATEMENTS: f64 = 2.0;
/// Percent of a core.
const PROCESSOR: f64 = 0.1;

/// How long after its start a worker is measured: by then it has connected and prepared its statements.
const SETTLE: Duration = Duration::from_secs(5);

/// The name of the queue, stream or topic.
const NAME: &str = "idem-bench-idle";

/// Measures and prints the results. Returns 0 if all targets are reached, 1 if one is not.
pub(crate) async fn measure(url: &str, options: &Idle) -> Result<u8> {
    let mut conn = PgConnection::connect(url).await?;
    message::tables(&mut conn).await?;
    println!("command     cargo xtask bench idle (release build)\n{}", Machine::look(&mut conn).await?);
    conn.close().await?;
    println!(
        "\nA worker with `.inbox()` on PostgreSQL and no message, {} s each. Statements are counted by a relay in front\n\
         of the server; the processor time is that of this process (getrusage), in a run without the relay.\n",
        options.seconds
    );
    println!("{:12} {:>24} {:>24}", "source", "statements per second", "processor, % of a core");
    println!("{:12} {:>24} {:>24}", "target", format!("at most {STATEMENTS}"), format!("at most {PROCESSOR}"));
    let mut missed = false;
    for source in &options.source {
        let relay = Relay::start(url).await?;
        let statements = per_second(&relay.url, *source, options.seconds, || Ok(relay.statements() as f64)).await?;
        drop(relay);
        let seconds = per_second(url, *source, options.seconds, || Ok(cpu(false)?.as_secs_f64())).await?;
        let above = statements > STATEMENTS || seconds * 100.0 > PROCESSOR;
        let verdict = if above { "missed" } else { "reached" };
        println!("{:12} {statements:>24.2} {:>24.3}  {verdict}", source.to_string(), seconds * 100.0);
        missed |= above;
    }
    println!("\nload        {} at the end", load());
    Ok(u8::from(missed))
}

/// Runs an idle worker on this source. Returns by how much the number grew per second.
async fn per_second(
    url: &str,
    source: IdleSource,
    seconds: f64,
    number: impl Fn() -> Result<f64> + Sync,
) -> Result<f64> {
    match source {
        IdleSource::Memory => rest(url, Deliveries::of(Queue::new(Vec::new())), seconds, number).await,
        IdleSource::RabbitMq => on::<RabbitMq>(Broker::RabbitMq, url, seconds, number).await,
        IdleSource::Nats => on::<Nats>(Broker::Nats, url, seconds, number).await,
        IdleSource::Kafka => on::<Kafka>(Broker::Kafka, url, seconds, number).await,
    }
}

async fn on<B: Client>(
    broker: Broker,
    url: &str,
    seconds: f64,
    number: impl Fn() -> Result<f64> + Sync,
) -> Result<f64> {
    let brokers = Brokers::look();
    let address = brokers.address(broker).with_context(|| format!("{} is not set", B::VARIABLE))?;
    let client = B::connect(address, NAME).await?;
    client.create().await?;
    // Its connection would take processor time.
    drop(client);
    let grown = rest(url, B::source(address, NAME).await?, seconds, number).await?;
    B::connect(address, NAME).await?.delete().await?;
    Ok(grown)
}

async fn rest(url: &str, source: impl Source, seconds: f64, number: impl Fn() -> Result<f64> + Sync) -> Result<f64> {
    let store = Postgres::options(url).schema(SCHEMA).connect().await?;
    let worker = Worker::new("bench", store, source).handler::<order_paid>().inbox();
    let mut grown = None;
    let measured = async {
        sleep(SETTLE).await;
        let before = number();
        sleep(Duration::from_secs_f64(seconds)).await;
        grown = Some(before.and_then(|before| Ok(number()? - before)));
    };
    worker.run_until(measured).await?;
    Ok(grown.context("the worker ended before it was measured")?? / seconds)
}
