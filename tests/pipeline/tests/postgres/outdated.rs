//! Sessions whose knowledge of the application's tables and types a migration has made untrue.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_conformance::store::{Setup, World};
use idem_core::{BoxError, Handler, RetryPolicy, State, Worker};
use idem_test::{Broker, Publication};
use serde::{Deserialize, Serialize};
use sqlx::encode::IsNull;
use sqlx::postgres::{PgArgumentBuffer, PgTypeInfo};
use sqlx::{AssertSqlSafe, PgConnection};

use crate::world::PostgresWorld;

#[derive(Serialize, Deserialize)]
struct Opened {
    id: String,
}

/// The schema of the handler's tables.
#[derive(Clone)]
struct Schema(String);

/// A type of the database, which sqlx looks up by its name, once per connection.
struct Colour(&'static str);

impl sqlx::Type<sqlx::Postgres> for Colour {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("colour")
    }
}

impl sqlx::Encode<'_, sqlx::Postgres> for Colour {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxError> {
        <&str as sqlx::Encode<sqlx::Postgres>>::encode_by_ref(&self.0, buffer)
    }
}

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

macro_rules! handler {
    ($name:ident, $is:literal, |$schema:ident, $tx:ident| $work:expr) => {
        struct $name;

        impl Handler for $name {
            const NAME: &'static str = $is;

            type Params = State<Schema>;

            idem_conformance::keyed_by_id!(Opened, PgConnection);

            async fn handle(_: Opened, State($schema): State<Schema>, $tx: &mut PgConnection) -> Result<(), BoxError> {
                $work.await.map_err(NotRead)?;
                Ok(())
            }
        }
    };
}

handler!(Open, "open", |schema, tx| async {
    let all = format!("SELECT * FROM {}accounts", schema.0);
    sqlx::query(AssertSqlSafe(all)).fetch_all(tx).await
});

handler!(Paint, "paint", |schema, tx| async {
    let path = format!("SET LOCAL search_path TO {}", schema.0.trim_end_matches('.'));
    sqlx::raw_sql(AssertSqlSafe(path)).execute(&mut *tx).await?;
    sqlx::query("INSERT INTO painted VALUES ($1)").bind(Colour("red")).execute(tx).await
});

handler!(Mistaken, "mistaken", |_schema, tx| async {
    let error = "DO $$ BEGIN RAISE EXCEPTION 'cache lookup failed for type 7' USING ERRCODE = 'XX000'; END $$";
    sqlx::raw_sql(error).execute(tx).await
});

async fn have_ended(outcomes: &Mutex<Vec<String>>, number: usize) {
    let ended = |outcome: &&String| ["processed", "dead"].contains(&outcome.as_str());
    while outcomes.lock().unwrap().iter().filter(ended).count() < number {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Processes this many messages behind each migration, in batches of this size. Returns the outcomes.
async fn outcomes<H>(migrations: [&str; 2], messages: usize, batch: usize) -> Option<Vec<String>>
where
    H: Handler<Message = Opened, Params = State<Schema>, Connection = PgConnection>,
{
    let world = PostgresWorld::make().await?;
    let schema = world.name("");
    let store = world.store(Setup::default()).await.unwrap();
    let (broker, seen) = (Broker::new(), Arc::new(Mutex::new(Vec::new())));
    let (queue, told) = (broker.queue("accounts"), seen.clone());
    let worker = Worker::new("billing", store, queue).state(Schema(schema.clone())).handler::<H>();
    // It waits until the batch is full.
    let linger = Duration::from_secs(if batch > 1 { 20 } else { 0 });
    let retry =
        RetryPolicy::new().max_attempts(2).min_delay(Duration::from_millis(1)).max_delay(Duration::from_millis(5));
    let worker = worker.batch(batch).linger(linger).concurrency(messages / batch);
    let worker = worker.retry(retry).poll_interval(Duration::from_millis(20));
    let worker = worker.observe(move |observed| {
        told.lock().unwrap().push(observed.outcome.as_str().to_owned());
    });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let work = async {
        for (round, migration) in migrations.into_iter().enumerate() {
            world.run(&migration.replace("{}", &schema)).await;
            for n in 0..messages {
                broker.publish("accounts", Publication::json(&Opened { id: format!("{round} {n}") }).unwrap());
            }
            have_ended(&seen, (round + 1) * messages).await;
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

const ADDED: [&str; 2] = ["CREATE TABLE {}accounts (id text)", "ALTER TABLE {}accounts ADD COLUMN name text"];
const COLOURS: &str = "CREATE TYPE {}colour AS ENUM ('red'); CREATE TABLE {}painted (colour {}colour)";

#[tokio::test]
async fn a_statement_whose_result_has_another_column_costs_no_attempt() {
    let Some(outcomes) = outcomes::<Open>(ADDED, 1, 1).await else { return };
    assert_eq!(outcomes, ["processed"; 2]);
}

/// Its messages run again singly, in another session.
#[tokio::test]
async fn a_statement_whose_result_has_another_column_costs_a_batch_no_attempt() {
    let Some(outcomes) = outcomes::<Open>(ADDED, 2, 2).await else { return };
    assert_eq!(outcomes, ["processed"; 4]);
}

/// Each of several sessions knows the number of the type that is gone.
#[tokio::test]
async fn a_type_that_was_dropped_and_created_again_costs_no_attempt() {
    let again = format!("DROP TABLE {{}}painted; DROP TYPE {{}}colour; {COLOURS}");
    let Some(outcomes) = outcomes::<Paint>([COLOURS, &again], 8, 1).await else { return };
    assert_eq!(outcomes, ["processed"; 16]);
}

/// Such an error of a handler itself comes in a new session as well.
#[tokio::test]
async fn an_error_of_an_outdated_session_that_a_new_one_repeats_is_a_failure() {
    let Some(outcomes) = outcomes::<Mistaken>(["SELECT 1"; 2], 1, 1).await else { return };
    assert_eq!(outcomes, ["scheduled", "dead", "scheduled", "dead"]);
}
