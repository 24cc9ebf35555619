//! Prepared statements of a handler that its sessions can run no more: a migration has added a column to their result.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_conformance::store::{Setup, World};
use idem_core::{BoxError, Delivery, Handler, Key, KeyError, Outcome, RetryPolicy, State, Worker};
use idem_test::{Broker, Publication};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, PgConnection};

use crate::world::PostgresWorld;

#[derive(Serialize, Deserialize)]
struct Opened {
    id: String,
}

/// The table of accounts.
#[derive(Clone)]
struct Accounts(String);

/// The error of an application around that of its driver.
#[derive(Debug)]
struct NotRead(sqlx::Error);

impl std::fmt::Display for NotRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the accounts could not be read")
    }
}

impl std::error::Error for NotRead {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Reads all columns of its table.
struct Open;

impl Handler for Open {
    const NAME: &'static str = "open";

    type Message = Opened;
    type Input = Opened;
    type Params = State<Accounts>;
    type Connection = PgConnection;

    fn key(opened: &Opened, _: &Delivery) -> Result<Key, KeyError> {
        Key::of(&opened.id)
    }

    async fn handle(_: Opened, State(accounts): State<Accounts>, tx: &mut PgConnection) -> Result<(), BoxError> {
        let all = format!("SELECT * FROM {}", accounts.0);
        sqlx::query(AssertSqlSafe(all)).fetch_all(tx).await.map_err(NotRead)?;
        Ok(())
    }
}

async fn are_processed(outcomes: &Mutex<Vec<String>>, number: usize) {
    while outcomes.lock().unwrap().iter().filter(|outcome| *outcome == "processed").count() < number {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Processes one batch of messages before the migration and one after it, on one connection after another. Returns the
/// outcomes.
async fn outcomes(batch: usize) -> Option<Vec<String>> {
    let world = PostgresWorld::make().await?;
    let table = world.name("accounts");
    world.run(&format!("CREATE TABLE {table} (id text)")).await;
    let store = world.store(Setup::default()).await.unwrap();
    let (broker, seen) = (Broker::new(), Arc::new(Mutex::new(Vec::new())));
    let (queue, told) = (broker.queue("accounts"), seen.clone());
    let worker = Worker::new("billing", store, queue).state(Accounts(table.clone())).handler::<Open>();
    // It waits until the batch is full.
    let linger = Duration::from_secs(if batch > 1 { 20 } else { 0 });
    let retry = RetryPolicy::new().min_delay(Duration::from_millis(1)).max_delay(Duration::from_millis(5));
    let worker = worker.batch(batch).linger(linger).concurrency(1);
    let worker = worker.retry(retry).poll_interval(Duration::from_millis(20));
    let worker = worker.observe(move |_: &Delivery, outcome: &Outcome| {
        told.lock().unwrap().push(outcome.as_str().to_owned());
    });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let work = async {
        for (round, migration) in [None, Some("ADD COLUMN name text")].into_iter().enumerate() {
            if let Some(migration) = migration {
                world.run(&format!("ALTER TABLE {table} {migration}")).await;
            }
            for n in 0..batch {
                broker.publish("accounts", Publication::json(&Opened { id: format!("{round} {n}") }).unwrap());
            }
            are_processed(&seen, (round + 1) * batch).await;
        }
        stop.send(()).unwrap();
    };
    let run = worker.run_until(async {
        let _ = stopped.await;
    });
    let both = async { tokio::join!(run, work) };
    let (ended, ()) = tokio::time::timeout(Duration::from_secs(60), both).await.unwrap();
    ended.unwrap();
    let outcomes = seen.lock().unwrap().clone();
    Some(outcomes)
}

/// The session is closed. On it, each further attempt of this and of other messages would fail as well.
#[tokio::test]
async fn a_statement_whose_result_has_another_column_fails_one_attempt_and_no_more() {
    let Some(outcomes) = outcomes(1).await else { return };
    assert_eq!(outcomes, ["processed", "scheduled", "processed"]);
}

/// Its messages run again singly, in another session.
#[tokio::test]
async fn a_statement_whose_result_has_another_column_costs_a_batch_no_attempt() {
    let Some(outcomes) = outcomes(2).await else { return };
    assert_eq!(outcomes, ["processed"; 4]);
}
