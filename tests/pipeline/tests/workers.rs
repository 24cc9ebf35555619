//! Several workers and relays in one process, and its end by a signal.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::process::Stdio;
use std::time::Duration;

use idem::prelude::*;
use idem::{Error, shutdown_signal};
use idem_conformance::until;
use idem_test::{Broker, MemorySink, Reply};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};
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

#[idempotent(key = "id", name = "stages")]
async fn stages(event: Event, _: &mut SqliteConnection, outbox: Outbox) -> Result<(), BoxError> {
    outbox.publish("events", &event)?;
    Ok(())
}

struct World {
    store: Sqlite,
    broker: Broker,
    directory: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Sqlite::connect(&format!("sqlite://{}/idem.db", directory.path().display())).await.unwrap();
        Self { store, broker: Broker::new(), directory }
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
    let workers = Workers::new().add(one).add(two);
    let both = workers.health();
    assert!(!both.is_ready(), "they do not run yet");
    let running = tokio::spawn(workers.run_until(async { drop(ended.await) }));
    for queue in ["one", "two"] {
        world.broker.publish_json(queue, &Event { id: 1 }).unwrap();
    }
    timeout(LIMIT, world.broker.idle()).await.unwrap();
    assert!(health.iter().all(|worker| worker.is_ready()), "both have processed a message");
    assert!(both.is_ready());
    end.send(()).unwrap();
    timeout(LIMIT, running).await.unwrap().unwrap().unwrap();
    assert!(health.iter().all(|worker| !worker.is_ready()), "both have ended");
    assert!(!both.is_ready());
    world.broker.publish_json("one", &Event { id: 2 }).unwrap();
    assert_eq!(world.broker.queue("one").counts().ready, 1, "nobody consumes any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_cannot_start_ends_the_others_with_its_error() {
    let world = World::new().await;
    let sound = world.worker("one");
    let broken = world.worker("two").handler::<namesake>();
    let relay = Relay::new("one", world.store.clone(), MemorySink::new());
    let health = [sound.health(), relay.health()];
    let workers = Workers::new().add(sound).add(broken).relay(relay);
    let error = timeout(LIMIT, workers.run_until(std::future::pending())).await.unwrap().unwrap_err();
    assert!(matches!(&error, Error::Config(why) if why.contains("two handlers have the name")), "{error}");
    assert!(health.iter().all(|one| !one.is_ready()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_cannot_start_ends_the_workers_with_its_error() {
    let world = World::new().await;
    let worker = world.worker("one");
    let health = worker.health();
    let nameless = Relay::new("", world.store.clone(), MemorySink::new());
    let workers = Workers::new().add(worker).relay(nameless);
    let error = timeout(LIMIT, workers.run_until(std::future::pending())).await.unwrap().unwrap_err();
    assert!(matches!(&error, Error::Config(why) if why.contains("the relay's name")), "{error}");
    assert!(!health.is_ready());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_publishes_and_drains_with_the_workers_of_its_group() {
    let world = World::new().await;
    let worker = Worker::new("one", world.store.clone(), world.broker.queue("one")).handler::<stages>();
    let sink = MemorySink::new();
    sink.on_publish(|_| Reply::Away);
    let relay = Relay::new("one", world.store.clone(), sink.clone());
    let health = [worker.health(), relay.health()];
    let workers = Workers::new().add(worker).relay(relay);
    let both = workers.health();
    let (end, ended) = oneshot::channel::<()>();
    let running = tokio::spawn(workers.run_until(async { drop(ended.await) }));
    world.broker.publish_json("one", &Event { id: 1 }).unwrap();
    timeout(LIMIT, sink.wait_for(|sink| sink.calls() > 0)).await.unwrap();
    until(async || !health[1].is_ready()).await;
    assert!(health[0].is_ready() && !both.is_ready(), "the broker of the relay is away");
    sink.on_publish(|_| Reply::Confirm);
    timeout(LIMIT, sink.wait_for(|sink| !sink.published().is_empty())).await.unwrap();
    until(async || both.is_ready()).await;
    end.send(()).unwrap();
    timeout(LIMIT, running).await.unwrap().unwrap().unwrap();
    assert!(health.iter().all(|one| !one.is_ready()), "both have ended");
    assert!(sink.closed() > 0, "the relay has closed its connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_workers_and_relays_of_a_group_are_in_the_table() {
    let world = World::new().await;
    let worker = Worker::new("one", world.store.clone(), world.broker.queue("one")).handler::<stages>().version("7.1");
    let sink = MemorySink::new();
    let relay = Relay::new("one", world.store.clone(), sink.clone()).version("7.2");
    let (end, ended) = oneshot::channel::<()>();
    let running = tokio::spawn(Workers::new().add(worker).relay(relay).run_until(async { drop(ended.await) }));
    let url = format!("sqlite://{}/idem.db", world.directory.path().display());
    let mut database = SqliteConnection::connect(&url).await.unwrap();
    let mut rows = async || -> Vec<(String, String, String, i64)> {
        let alive = "SELECT kind, name, version, pid FROM idem_workers ORDER BY kind";
        sqlx::query_as(alive).fetch_all(&mut database).await.unwrap()
    };
    let row =
        |kind: &str, version: &str| (kind.to_owned(), "one".to_owned(), version.to_owned(), std::process::id().into());
    let both = [row("relay", "7.2"), row("worker", "7.1")];
    until(async || rows().await == both).await;
    world.broker.publish_json("one", &Event { id: 1 }).unwrap();
    timeout(LIMIT, sink.wait_for(|sink| sink.published().len() == 1)).await.unwrap();
    timeout(LIMIT, world.broker.idle()).await.unwrap();
    // One that joins writes the rows of all at once.
    let (leave, left) = oneshot::channel::<()>();
    let other = Relay::new("two", world.store.clone(), MemorySink::new());
    let other = tokio::spawn(other.run_until(async { drop(left.await) }));
    until(async || rows().await.len() == 3).await;
    let minute = |minute: u8| format!("CAST(report -> 'processed' ->> {minute} AS INTEGER)");
    let counted =
        format!("SELECT kind, {} + {} FROM idem_workers WHERE name = 'one' ORDER BY kind", minute(0), minute(1));
    let mut looks = SqliteConnection::connect(&url).await.unwrap();
    let counted: Vec<(String, i64)> = sqlx::query_as(sqlx::AssertSqlSafe(counted)).fetch_all(&mut looks).await.unwrap();
    assert_eq!(counted, [("relay".to_owned(), 1), ("worker".to_owned(), 1)]);
    leave.send(()).unwrap();
    timeout(LIMIT, other).await.unwrap().unwrap().unwrap();
    end.send(()).unwrap();
    timeout(LIMIT, running).await.unwrap().unwrap().unwrap();
    assert_eq!(rows().await.len(), 3, "a row stays, and is soon too old to count as alive");
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
    let Some(example) = idem_conformance::example("service") else { return };
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

mod connections {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
    use tracing::instrument::WithSubscriber;

    use super::*;

    #[idempotent(key = "id", name = "slow")]
    async fn slow(_: Event, State(calls): State<Arc<AtomicUsize>>, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        calls.fetch_add(1, Relaxed);
        tx.execute("SELECT pg_sleep(0.05)").await?;
        Ok(())
    }

    const LEASE: Duration = Duration::from_secs(3);

    /// Runs longer than a row is leased.
    #[idempotent(key = "id", name = "slower")]
    async fn slower(_: Event, State(calls): State<Arc<AtomicUsize>>, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        calls.fetch_add(1, Relaxed);
        tx.execute("SELECT pg_sleep(6)").await?;
        Ok(())
    }

    async fn store(url: &str, schema: &str, connections: usize) -> Postgres {
        Postgres::options(url).schema(schema).connections(connections).connect().await.unwrap()
    }

    async fn drop_schema(url: &str, schema: &str) {
        let mut admin = PgConnection::connect(url).await.unwrap();
        admin.execute(sqlx::raw_sql(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE")))).await.unwrap();
    }

    #[tokio::test]
    async fn three_workers_take_turns_with_three_connections() {
        let Some(url) = idem_conformance::server("DATABASE_URL") else { return };
        let schema = format!("idem_workers_{}", uuid::Uuid::new_v4().simple());
        let (store, broker, calls) = (store(&url, &schema, 3).await, Broker::new(), Arc::new(AtomicUsize::new(0)));
        let mut workers = Workers::new();
        for name in ["one", "two", "three"] {
            (1..=20).for_each(|id| broker.publish_json(name, &Event { id }).unwrap());
            let worker = Worker::new(name, store.clone(), broker.queue(name)).state(calls.clone()).handler::<slow>();
            workers = workers.add(worker);
        }
        let (text, subscriber) = idem_conformance::captured();
        let idle = broker.clone();
        let run = workers.run_until(async move { idle.idle().await }).with_subscriber(subscriber);
        timeout(LIMIT, run).await.unwrap().unwrap();
        assert_eq!(calls.load(Relaxed), 60);
        let text = text.to_string();
        for part in [
            "(16 by `.concurrency(..)`, 4 by `.inbox_concurrency(..)`, 5 to store deliveries and for statements of its own)",
            "`.connections(75)`",
            "all workers of this store together 75",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        assert_eq!(text.matches("so messages wait for connections").count(), 3, "each, with the sum of all: {text}");
        assert!(!text.contains("WARN") && !text.contains("ERROR"), "{text}");
        drop_schema(&url, &schema).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_lease_is_extended_while_handlers_have_all_connections_but_one() {
        let Some(url) = idem_conformance::server("DATABASE_URL") else { return };
        let schema = format!("idem_workers_{}", uuid::Uuid::new_v4().simple());
        let (store, broker, calls) = (store(&url, &schema, 3).await, Broker::new(), Arc::new(AtomicUsize::new(0)));
        (1..=4).for_each(|id| broker.publish_json("slower", &Event { id }).unwrap());
        let worker = Worker::new("slower", store, broker.queue("slower")).state(calls.clone()).handler::<slower>();
        let (done, shutdown) = oneshot::channel::<()>();
        let worker = worker.inbox().lease_duration(LEASE).run_until(async { drop(shutdown.await) });
        let worker = tokio::spawn(worker);

        let mut looks = PgConnection::connect(&url).await.unwrap();
        // Another process fetches a row whose lease is over, unless a run has locked it.
        let over = format!(
            "SELECT count(*) FROM (SELECT FROM {schema}.inbox_messages WHERE locked_until < now() \
             FOR UPDATE SKIP LOCKED) over"
        );
        let left = format!("SELECT count(*) FROM {schema}.inbox_messages");
        let run = async {
            loop {
                let left: i64 = sqlx::query_scalar(AssertSqlSafe(left.as_str())).fetch_one(&mut looks).await.unwrap();
                if left == 0 && calls.load(Relaxed) == 4 {
                    return;
                }
                let over: i64 = sqlx::query_scalar(AssertSqlSafe(over.as_str())).fetch_one(&mut looks).await.unwrap();
                assert_eq!(over, 0, "a lease is over");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(LIMIT, run).await.unwrap();
        done.send(()).unwrap();
        worker.await.unwrap().unwrap();
        assert_eq!(calls.load(Relaxed), 4);
        drop_schema(&url, &schema).await;
    }
}
