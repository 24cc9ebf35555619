//! Writes a thousand readings with a few statements. One reading cannot be written, and does not affect the others.
//!
//! `cargo run --example batch` needs no server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use idem::operator::{Filter, Operator, Page};
use idem::prelude::*;
use idem_test::Broker;
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};

const READINGS: i64 = 1_000;

#[derive(Serialize, Deserialize)]
struct Reading {
    event_id: String,
    celsius: f64,
}

/// Counts the calls of the handler.
#[derive(Clone, Default)]
struct Calls(Arc<AtomicUsize>);

/// Receives all new messages of a batch, without copies. An error rolls all of them back, and the batch is halved until
/// the failing message is alone.
#[idempotent(key = "event_id", name = "readings")]
async fn readings(
    readings: Batch<Reading>,
    State(calls): State<Calls>,
    tx: &mut SqliteConnection,
) -> Result<(), BoxError> {
    calls.0.fetch_add(1, Relaxed);
    if let Some(reading) = readings.iter().find(|reading| reading.celsius < -273.15) {
        return Err(permanent(format!("{} is below absolute zero", reading.celsius)));
    }
    let rows = serde_json::to_string(&readings[..])?;
    sqlx::query("INSERT INTO readings SELECT value ->> 'event_id', value ->> 'celsius' FROM json_each(?)")
        .bind(rows)
        .execute(tx)
        .await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let directory = tempfile::tempdir()?;
    let url = format!("sqlite://{}", directory.path().join("weather.db").display());
    let store = Sqlite::connect(&url).await?;
    let mut db = SqliteConnection::connect(&url).await?;
    sqlx::raw_sql("CREATE TABLE readings (id TEXT PRIMARY KEY, celsius REAL NOT NULL)").execute(&mut db).await?;

    // Every tenth reading is published twice, and one of them is wrong.
    let broker = Broker::new();
    for n in 0..READINGS {
        let celsius = if n == 500 { -300.0 } else { 20.0 };
        for _ in 0..if n % 10 == 3 { 2 } else { 1 } {
            broker.publish_json("readings", &Reading { event_id: format!("reading-{n:04}"), celsius })?;
        }
    }

    let (emptied, calls) = (broker.clone(), Calls::default());
    Worker::new("weather", store.clone(), broker.queue("readings"))
        .state(calls.clone())
        .handler::<readings>()
        .batch(100)
        .run_until(async move { emptied.idle().await })
        .await?;

    let written: i64 = sqlx::query_scalar("SELECT count(*) FROM readings").fetch_one(&mut db).await?;
    let dead = Operator::new(&store).consumer("weather").list(&Filter::default(), Page::default()).await?.rows;
    let calls = calls.0.load(Relaxed);
    println!("published    {} messages: {READINGS} readings, every tenth of them twice", READINGS + READINGS / 10);
    println!("written      {written} readings, by {calls} calls of the handler");
    println!("dead letter  {}: {}", dead[0].identity.key, dead[0].error);
    assert_eq!((written, dead.len()), (READINGS - 1, 1));
    assert!(calls < 500, "{calls} calls");
    Ok(())
}
