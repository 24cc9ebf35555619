//! A worker whose callback for credentials fails while it runs.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use idem_conformance::server;
use idem_core::{BoxError, Delivery, Handler, Key, KeyError, Postgres, Worker};
use idem_test::{Broker, Publication};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

struct Paid;

impl Handler for Paid {
    const NAME: &'static str = "paid";

    type Message = u32;
    type Input = u32;
    type Params = ();
    type Connection = PgConnection;

    fn key(id: &u32, _: &Delivery) -> Result<Key, KeyError> {
        Key::of(id)
    }

    async fn handle(_: u32, (): (), tx: &mut PgConnection) -> Result<(), BoxError> {
        sqlx::query("SELECT 1").execute(tx).await?;
        Ok(())
    }
}

#[tokio::test]
async fn a_worker_outlives_a_callback_that_fails() {
    let Some(url) = server("DATABASE_URL") else { return };
    let name = format!("idem_login_{}", Uuid::new_v4().simple());
    let mut admin = PgConnection::connect(&url).await.unwrap();
    let sql = format!("CREATE ROLE {name} LOGIN PASSWORD 'fresh'; CREATE SCHEMA {name}_store AUTHORIZATION {name}");
    admin.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();

    let away = Arc::new(AtomicBool::new(false));
    let (failed, mut failures) = mpsc::unbounded_channel();
    let (user, is_away) = (name.clone(), away.clone());
    let ask = move |options: PgConnectOptions| {
        let answer = match is_away.load(SeqCst) {
            false => Ok(options.username(&user).password("fresh")),
            true => Err("the token service is away".into()),
        };
        if answer.is_err() {
            let _ = failed.send(());
        }
        async move { answer }
    };
    let store = Postgres::options(&url).schema(format!("{name}_store")).credentials(ask).connect().await.unwrap();
    let broker = Broker::new();
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = Worker::new("billing", store, broker.queue("paid")).handler::<Paid>();
    let worker = tokio::spawn(worker.run_until(async { stopped.await.unwrap() }));
    broker.publish("paid", Publication::new("1"));
    broker.queue("paid").settled(1).await;

    // All connections end, and no new one can log in.
    away.store(true, SeqCst);
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1";
    sqlx::query(sql).bind(&name).execute(&mut admin).await.unwrap();
    broker.publish("paid", Publication::new("2"));
    for _ in 0..3 {
        tokio::time::timeout(Duration::from_secs(60), failures.recv()).await.unwrap().unwrap();
    }
    assert!(!worker.is_finished());
    away.store(false, SeqCst);
    broker.queue("paid").settled(2).await;

    stop.send(()).unwrap();
    worker.await.unwrap().unwrap();
    let sql = format!("DROP SCHEMA {name}_store CASCADE; DROP ROLE {name}");
    admin.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
}
