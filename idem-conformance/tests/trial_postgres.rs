//! Trials with a schema of their own on PostgreSQL.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::pin::pin;

use idem_conformance::server;
use idem_core::{BoxError, Error, Handler, Outcome, Postgres};
use idem_test::{Crash, Trial};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};
use uuid::Uuid;

#[derive(Serialize, Deserialize)]
struct Paid {
    id: u32,
}

struct Book;

impl Handler for Book {
    const NAME: &'static str = "book";

    type Params = ();

    idem_conformance::keyed_by_id!(Paid, PgConnection);

    /// The URL of each test has a search path of its own.
    async fn handle(paid: Paid, (): (), tx: &mut PgConnection) -> Result<(), BoxError> {
        sqlx::query("INSERT INTO booked VALUES ($1)").bind(i64::from(paid.id)).execute(tx).await?;
        Ok(())
    }
}

/// An application, with a table in a schema of its own.
struct Shop {
    url: String,
    schema: String,
    admin: PgConnection,
}

impl Shop {
    async fn open() -> Option<Self> {
        let url = server("DATABASE_URL")?;
        let schema = format!("shop_{}", Uuid::new_v4().simple());
        let url = format!("{url}{}options=-c%20search_path%3D{schema}", if url.contains('?') { '&' } else { '?' });
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let sql = format!("CREATE SCHEMA {schema}; CREATE TABLE booked (id bigint NOT NULL)");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut admin).await.unwrap();
        Some(Self { url, schema, admin })
    }

    /// A trial, and its schema.
    async fn trial(&self) -> (Trial<Postgres>, String) {
        let bench = Trial::postgres().url(&*self.url);
        let schema = schema(&bench);
        (bench.handler::<Book>().await.unwrap(), schema)
    }

    async fn booked(&mut self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM booked").fetch_one(&mut self.admin).await.unwrap()
    }

    async fn has(&mut self, schema: &str) -> bool {
        let asked = "SELECT count(*) > 0 FROM pg_namespace WHERE nspname = $1";
        sqlx::query_scalar(asked).bind(schema).fetch_one(&mut self.admin).await.unwrap()
    }

    async fn end(mut self) {
        let sql = format!("DROP SCHEMA {} CASCADE", self.schema);
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.admin).await.unwrap();
    }
}

fn schema(bench: &impl std::fmt::Debug) -> String {
    let shown = format!("{bench:?}");
    assert!(!shown.contains("postgres://"), "{shown}");
    shown.split('"').find(|part| part.starts_with("idem_trial_")).unwrap().to_owned()
}

#[tokio::test]
async fn a_test_that_runs_again_with_the_same_id_processes_it_again() {
    let Some(mut shop) = Shop::open().await else { return };
    for run in 1..=2 {
        let (trial, schema) = shop.trial().await;
        assert!(shop.has(&schema).await);
        let outcomes = trial.deliver_json(&Paid { id: 7 }).unwrap().times(2).await.unwrap();
        assert_eq!(outcomes, [Outcome::Processed, Outcome::Duplicate], "run {run}");
        drop(trial);
        assert!(!shop.has(&schema).await);
        assert_eq!(shop.booked().await, run, "the application's rows stay");
    }
    shop.end().await;
}

#[tokio::test]
async fn trials_at_the_same_time_do_not_meet() {
    let Some(mut shop) = Shop::open().await else { return };
    let ((one, _), (other, schema)) = (shop.trial().await, shop.trial().await);
    for trial in [&one, &other] {
        assert_eq!(trial.deliver_json(&Paid { id: 7 }).unwrap().once().await.unwrap(), [Outcome::Processed]);
    }
    drop(one);
    let crashed = other.deliver_json(&Paid { id: 8 }).unwrap().crash(Crash::AfterClaim);
    crashed.processes(2).once().await.unwrap();
    drop(other);
    assert_eq!((shop.has(&schema).await, shop.booked().await), (false, 3));
    shop.end().await;
}

#[tokio::test]
async fn a_test_that_panics_leaves_no_schema_behind() {
    let Some(mut shop) = Shop::open().await else { return };
    let (trial, schema) = shop.trial().await;
    let test = tokio::spawn(async move {
        trial.deliver_json(&Paid { id: 7 }).unwrap().once().await.unwrap();
        assert_eq!(trial.outcomes(), [], "as a test fails");
    });
    assert!(test.await.unwrap_err().is_panic());
    assert!(!shop.has(&schema).await);
    shop.end().await;
}

/// The schema is there until then, and the trial is cut off in the middle.
#[tokio::test]
async fn a_test_that_is_cut_off_while_a_process_runs_leaves_no_schema_behind() {
    let Some(mut shop) = Shop::open().await else { return };
    let (trial, schema) = shop.trial().await;
    let sent = trial.deliver_json(&Paid { id: 7 }).unwrap().crash(Crash::InHandler);
    {
        // The handler waits for a lock until the process is killed.
        let mut holder = shop.admin.begin().await.unwrap();
        sqlx::query("LOCK TABLE booked").execute(&mut *holder).await.unwrap();
        let (mut sending, queue) = (pin!(sent.once()), trial.broker().queue("trial"));
        tokio::select! {
            _ = &mut sending => {}
            () = queue.delivered(1) => {}
        }
    }
    drop(trial);
    assert!(!shop.has(&schema).await);
    shop.end().await;
}

#[tokio::test]
async fn a_trial_that_cannot_begin_says_why() {
    let Some(mut shop) = Shop::open().await else { return };
    let role = shop.schema.clone();
    let sql = format!("CREATE ROLE {role} LOGIN PASSWORD 'secret'");
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut shop.admin).await.unwrap();
    let url = shop.url.parse::<PgConnectOptions>().unwrap().username(&role).password("secret").to_url_lossy();
    let Err(denied @ Error::Denied { .. }) = Trial::postgres().url(url).handler::<Book>().await else {
        panic!("it began")
    };
    let why = denied.to_string();
    assert!(why.contains("idem_trial_") && why.contains(&role), "{why}");
    sqlx::raw_sql(AssertSqlSafe(format!("DROP ROLE {role}"))).execute(&mut shop.admin).await.unwrap();
    shop.end().await;
}

#[tokio::test]
async fn a_trial_with_a_wrong_login_names_the_cause() {
    let Some(shop) = Shop::open().await else { return };
    let url = shop.url.parse::<PgConnectOptions>().unwrap().username("nobody").password("s3ntinel").to_url_lossy();
    let Err(error) = Trial::postgres().url(url).handler::<Book>().await else { panic!("it began") };
    let text = format!("{error:?}");
    assert!(text.contains("nobody") && !text.contains("s3ntinel"), "{text}");
    shop.end().await;
}

#[tokio::test]
async fn the_tables_of_a_trial_are_its_own() {
    let Some(mut shop) = Shop::open().await else { return };
    for _ in 0..2 {
        let bench = Trial::postgres().url(&*shop.url).tables("CREATE TABLE booked (id bigint PRIMARY KEY)");
        let schema = schema(&bench);
        let trial = bench.handler::<Book>().await.unwrap();
        assert_eq!(trial.deliver_json(&Paid { id: 7 }).unwrap().once().await.unwrap(), [Outcome::Processed]);
        let booked = trial.number("SELECT count(*) FROM booked").await.unwrap();
        drop(trial);
        assert_eq!((booked, shop.has(&schema).await), (1, false));
    }
    assert_eq!(shop.booked().await, 0, "the application's table is another one");
    let Err(error) = Trial::postgres().url(&*shop.url).tables("CREATE TABEL booked ()").handler::<Book>().await else {
        panic!("it began")
    };
    assert!(format!("{error:?}").contains(".tables(..)") && format!("{error:?}").contains("TABEL"), "{error:?}");
    shop.end().await;
}

#[tokio::test]
async fn a_test_reads_its_tables_and_writes_none() {
    let Some(shop) = Shop::open().await else { return };
    let tables = "CREATE TABLE booked (id bigint); CREATE TABLE small (number integer)";
    let trial = Trial::postgres().url(&*shop.url).tables(tables).handler::<Book>().await.unwrap();
    assert_eq!(trial.number("SELECT sum(id) FROM booked").await.unwrap(), 0, "NULL");
    assert_eq!(trial.number("SELECT number FROM small").await.unwrap(), 0, "no row");
    let booked = trial.rolled_back(async |tx: &mut PgConnection| {
        Book::handle(Paid { id: 7 }, (), tx).await?;
        Ok(sqlx::query_scalar::<_, i64>("SELECT id FROM booked").fetch_all(tx).await?)
    });
    assert_eq!(booked.await.unwrap(), [7]);
    assert_eq!(trial.number("SELECT sum(id) FROM booked").await.unwrap(), 0, "it was rolled back");
    trial.deliver_json(&Paid { id: 7 }).unwrap().once().await.unwrap();
    assert_eq!(trial.number("SELECT sum(id) FROM booked").await.unwrap(), 7, "a numeric");
    assert!(trial.number("SELECT nothing FROM booked").await.is_err());
    drop(trial);
    shop.end().await;
}
