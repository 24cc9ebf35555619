//! Several workers in one process, and its end by a signal.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::process::Stdio;
use std::time::Duration;

use idem::prelude::*;
use idem::{Error, shutdown_signal};
use idem_test::Broker;
use serde::{Deserialize, Serialize};
use sqlx::SqliteConnection;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
struct Event {
    id: u32,
}

#[idempotent(key = "id", name = "quick")]
async fn quick(_: Event, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

/// Another handler with the same name, so that a worker with both cannot start.
#[idempotent(key = "id", name = "quick")]
async fn namesake(_: Event, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

struct World {
    store: Sqlite,
    broker: Broker,
    _directory: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Sqlite::connect(&format!("sqlite://{}/idem.db", directory.path().display())).await.unwrap();
        Self { store, broker: Broker::new(), _directory: directory }
    }

    fn worker(
        &self,
        name: &str,
    ) -> Worker<Sqlite, idem_test::Queue, (), idem::codec::Json, idem::handler::WithHandlers> {
        Worker::new(name, self.store.clone(), self.broker.queue(name)).handler::<quick>()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_workers_drain_at_the_shutdown() {
    let world = World::new().await;
    let (one, two) = (world.worker("one"), world.worker("two"));
    let health = [one.health(), two.health()];
    let (end, ended) = oneshot::channel::<()>();
    let running = tokio::spawn(Workers::new().add(one).add(two).run_until(async { drop(ended.await) }));
    for queue in ["one", "two"] {
        world.broker.publish_json(queue, &Event { id: 1 }).unwrap();
    }
    timeout(LIMIT, world.broker.idle()).await.unwrap();
    assert!(health.iter().all(|worker| worker.is_ready()), "both have processed a message");
    end.send(()).unwrap();
    timeout(LIMIT, running).await.unwrap().unwrap().unwrap();
    assert!(health.iter().all(|worker| !worker.is_ready()), "both have ended");
    world.broker.publish_json("one", &Event { id: 2 }).unwrap();
    assert_eq!(world.broker.queue("one").counts().ready, 1, "nobody consumes any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_cannot_start_ends_the_others_with_its_error() {
    let world = World::new().await;
    let sound = world.worker("one");
    let health = sound.health();
    let broken = world.worker("two").handler::<namesake>();
    let workers = Workers::new().add(sound).add(broken);
    let error = timeout(LIMIT, workers.run_until(std::future::pending())).await.unwrap().unwrap_err();
    assert!(matches!(&error, Error::Config(why) if why.contains("two handlers have the name")), "{error}");
    assert!(!health.is_ready());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_without_workers_is_an_error() {
    let error = Workers::new().run_until(std::future::pending()).await.unwrap_err();
    assert!(error.to_string().contains("Workers::new().add(worker)"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_group_ends_all_workers() {
    let world = World::new().await;
    let worker = world.worker("one");
    let health = worker.health();
    let running = tokio::spawn(Workers::new().add(worker).run_until(shutdown_signal()));
    world.broker.publish_json("one", &Event { id: 1 }).unwrap();
    timeout(LIMIT, world.broker.idle()).await.unwrap();
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert!(!health.is_ready());
}

/// Runs `examples/service.rs`, as a user does, and ends it while its handler runs.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_asked_to_end_finishes_what_runs() {
    // `cargo test` builds the examples beside the tests.
    let tests = std::env::current_exe().unwrap();
    let example = tests.ancestors().nth(2).unwrap().join("examples/service");
    if !example.exists() {
        assert!(std::env::var_os("CI").is_none(), "{} was not built", example.display());
        eprintln!("skipped: {} was not built, run cargo build --examples", example.display());
        return;
    }
    for signal in ["-TERM", "-INT"] {
        let mut service = Command::new(&example).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(service.stdout.take().unwrap()).lines();
        let mut line = async || timeout(LIMIT, lines.next_line()).await.unwrap().unwrap().unwrap();
        assert!(line().await.starts_with("running as process"));
        while line().await != "handling order-1" {}
        let process = service.id().unwrap().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().await.unwrap().success());
        let last = loop {
            let line = line().await;
            if line.starts_with("ended") {
                break line;
            }
        };
        // The refund of 5 may not have begun.
        assert!(["ended with the balance 20", "ended with the balance 25"].contains(&last.as_str()), "{last}");
        assert!(timeout(LIMIT, service.wait()).await.unwrap().unwrap().success());
    }
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_is_too_small_is_told_with_the_sum_and_what_it_consists_of() {
    use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

    #[idempotent(key = "id", name = "quick")]
    async fn quick(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
        Ok(())
    }

    let Some(url) = idem_test::conformance::server("DATABASE_URL") else { return };
    let schema = format!("idem_workers_{}", uuid::Uuid::new_v4().simple());
    let store = Postgres::options(&url).schema(&schema).connections(30).connect().await.unwrap();
    let broker = Broker::new();
    let worker = |name: &str| Worker::new(name, store.clone(), broker.queue(name)).handler::<quick>();
    let workers = Workers::new().add(worker("one")).add(worker("two")).add(worker("three"));
    let error = timeout(LIMIT, workers.run_until(std::future::pending())).await.unwrap().unwrap_err().to_string();
    for part in [
        "the store has 30",
        "16 for `.concurrency(16)`, 4 for `.inbox_concurrency(4)`, 2 to store deliveries and 3 of its own",
        "`.connections(75)`",
    ] {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
    let mut admin = PgConnection::connect(&url).await.unwrap();
    admin.execute(sqlx::raw_sql(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE")))).await.unwrap();
}
