//! Crashes everywhere, on PostgreSQL.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod elsewhere;
#[path = "worlds/postgres.rs"]
mod world;

use std::time::Instant;

use idem_conformance::server;
use idem_core::{BoxError, Handler};
use idem_test::Trial;
use idem_test::harness::{Bench, CrashReport, FreshSchema, Phase};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

/// The world of the tests in `elsewhere`.
type Tested = world::PostgresWorld;

#[derive(Serialize, Deserialize)]
struct Paid {
    id: u32,
}

/// Defines a handler by its name and its body.
macro_rules! handler {
    ($(#[$doc:meta])* $name:ident, |$paid:ident, $tx:ident| $body:block) => {
        $(#[$doc])*
        struct $name;

        impl Handler for $name {
            const NAME: &'static str = "book";

            type Params = ();

            idem_conformance::keyed_by_id!(Paid, PgConnection);

            async fn handle($paid: Paid, (): (), $tx: &mut PgConnection) -> Result<(), BoxError> $body
        }
    };
}

handler!(
    /// Writes two tables in its transaction.
    Book, |paid, tx| {
        sqlx::query("UPDATE account SET balance = balance + 25").execute(&mut *tx).await?;
        book(&paid, tx).await
    }
);

handler!(
    /// Takes a number, which no rollback takes back.
    Numbers, |paid, tx| {
        sqlx::query("SELECT nextval('numbers')").execute(&mut *tx).await?;
        book(&paid, tx).await
    }
);

handler!(
    /// Ends its transaction in the middle.
    Commits, |paid, tx| {
        sqlx::raw_sql("COMMIT; BEGIN READ WRITE").execute(&mut *tx).await?;
        book(&paid, tx).await
    }
);

async fn book(paid: &Paid, db: &mut PgConnection) -> Result<(), BoxError> {
    sqlx::query("INSERT INTO booked VALUES ($1)").bind(i64::from(paid.id)).execute(db).await?;
    Ok(())
}

const TABLES: &str = "CREATE TABLE booked (id bigint NOT NULL);
                      CREATE SEQUENCE numbers;
                      CREATE TABLE account (balance bigint NOT NULL); INSERT INTO account VALUES (0)";

/// Crashes everywhere, and compares all of them. `None` without a server.
async fn crash<H>(set: impl FnOnce(Bench<FreshSchema>) -> Bench<FreshSchema>) -> Option<Result<CrashReport, String>>
where
    H: Handler<Message = Paid, Params = (), Connection = PgConnection>,
{
    let bench = Trial::postgres().url(server("DATABASE_URL")?).tables(TABLES);
    let trial = set(bench).handler::<H>().await.unwrap();
    let digest = async || {
        let numbers = trial.number("SELECT balance + last_value FROM account, numbers").await?;
        let booked: Vec<(i64,)> = trial
            .rolled_back(async |db: &mut PgConnection| Ok(sqlx::query_as("SELECT * FROM booked").fetch_all(db).await?))
            .await?;
        Ok((numbers, booked))
    };
    let report = trial.crash_everywhere(|id| Paid { id }, digest).await;
    Some(report.map_err(|error| error.to_string()))
}

#[tokio::test]
async fn a_good_handler_has_one_effect_wherever_it_crashes() {
    let began = Instant::now();
    let Some(report) = crash::<Book>(|bench| bench).await else { return };
    let report = report.unwrap();
    println!("{report}; it took {:?}", began.elapsed());
    assert!(report.points_in(Phase::InHandler) > 1, "two statements: {report}");
}

#[tokio::test]
async fn a_good_handler_has_one_effect_wherever_it_crashes_as_it_runs_from_the_inbox() {
    let Some(report) = crash::<Book>(|bench| bench.inbox()).await else { return };
    println!("{}", report.unwrap());
}

#[tokio::test]
async fn an_effect_that_no_rollback_takes_back_is_there_twice_after_a_crash() {
    let Some(report) = crash::<Numbers>(|bench| bench).await else { return };
    let seen = report.unwrap_err();
    assert!(seen.contains(" in the handler (during wait ") && seen.contains("effects in both processes"), "{seen}");
}

#[tokio::test]
async fn a_commit_by_the_handler_is_found_before_any_crash() {
    let Some(report) = crash::<Commits>(|bench| bench).await else { return };
    let seen = report.unwrap_err();
    assert!(seen.contains("it is a dead letter (committed by its handler)"), "{seen}");
}
