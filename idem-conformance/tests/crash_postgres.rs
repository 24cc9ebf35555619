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

/// Writes two tables in its transaction.
struct Book;

impl Handler for Book {
    const NAME: &'static str = "book";

    type Params = ();

    idem_conformance::keyed_by_id!(Paid, PgConnection);

    async fn handle(paid: Paid, (): (), tx: &mut PgConnection) -> Result<(), BoxError> {
        sqlx::query("UPDATE account SET balance = balance + 25").execute(&mut *tx).await?;
        sqlx::query("INSERT INTO booked VALUES ($1)").bind(i64::from(paid.id)).execute(tx).await?;
        Ok(())
    }
}

const TABLES: &str = "CREATE TABLE booked (id bigint NOT NULL);
                      CREATE TABLE account (balance bigint NOT NULL); INSERT INTO account VALUES (0)";

/// Crashes everywhere, and compares both of them. `None` without a server.
async fn crash(set: impl FnOnce(Bench<FreshSchema>) -> Bench<FreshSchema>) -> Option<CrashReport> {
    let bench = Trial::postgres().url(server("DATABASE_URL")?).tables(TABLES);
    let trial = set(bench).handler::<Book>().await.unwrap();
    let digest = async || {
        let balance = trial.number("SELECT balance FROM account").await?;
        let booked: Vec<(i64,)> = trial
            .rolled_back(async |db: &mut PgConnection| Ok(sqlx::query_as("SELECT * FROM booked").fetch_all(db).await?))
            .await?;
        Ok((balance, booked))
    };
    Some(trial.crash_everywhere(|id| Paid { id }, digest).await.unwrap())
}

#[tokio::test]
async fn a_good_handler_has_one_effect_wherever_it_crashes() {
    let began = Instant::now();
    let Some(report) = crash(|bench| bench).await else { return };
    println!("{report}; it took {:?}", began.elapsed());
    assert!(report.points_in(Phase::InHandler) > 1, "two statements: {report}");
}

#[tokio::test]
async fn a_good_handler_has_one_effect_wherever_it_crashes_as_it_runs_from_the_inbox() {
    let Some(report) = crash(|bench| bench.inbox()).await else { return };
    println!("{report}");
}
