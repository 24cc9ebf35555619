//! The example `operator`, run as an operator runs it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::PathBuf;
use std::time::Duration;

use idem::prelude::*;
use idem::store::{Filter, Page, Row};
use idem_test::{Broker, Publication};
use serde::Deserialize;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::process::Command;

#[derive(Deserialize)]
struct OrderPaid {
    id: String,
}

#[idempotent(key = "id", name = "order_paid")]
async fn order_paid(paid: OrderPaid, tx: &mut PgConnection) -> Result<(), BoxError> {
    if paid.id.starts_with("commits") {
        tx.execute("COMMIT").await?;
    }
    Err(permanent(format!("the bank refuses {}", paid.id)))
}

/// A database with idem's tables where the example looks for them.
struct World {
    example: PathBuf,
    server: String,
    database: String,
    url: String,
}

impl World {
    async fn new() -> Option<Self> {
        let (server, example) = (idem_conformance::server("DATABASE_URL")?, idem_conformance::example("operator")?);
        let database = format!("idem_operator_{}", uuid::Uuid::new_v4().simple());
        let mut admin = PgConnection::connect(&server).await.unwrap();
        admin.execute(AssertSqlSafe(format!("CREATE DATABASE {database}"))).await.unwrap();
        let (start, name) = server.rsplit_once('/').unwrap();
        let parameters = name.split_once('?').map_or(String::new(), |(_, parameters)| format!("?{parameters}"));
        let url = format!("{start}/{database}{parameters}");
        Some(Self { example, server, database, url })
    }

    /// Has a worker make a dead letter of a message with each of these ids. Returns them, oldest first.
    async fn dead(&self, ids: &[&str]) -> Vec<Row> {
        let store = Postgres::connect(&self.url).await.unwrap();
        let (broker, inbox) = (Broker::new(), Inbox::new(&store, "billing"));
        // The number makes a second message with an id a conflict.
        for (number, id) in ids.iter().enumerate() {
            let payload = format!(r#"{{"id": "{id}", "number": {number}}}"#);
            broker.publish("orders", Publication::new(payload).header("tenant", "acme"));
        }
        let idle = broker.clone();
        let worker = Worker::new("billing", store, broker.queue("orders")).concurrency(1).handler::<order_paid>();
        let run = worker.run_until(async move { idle.idle().await });
        tokio::time::timeout(Duration::from_secs(60), run).await.unwrap().unwrap();
        let mut rows = inbox.list(&Filter::new(), Page::default()).await.unwrap();
        rows.reverse();
        rows
    }

    /// Runs the command for the consumer. Returns what it prints, or its error.
    async fn run(&self, args: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.example);
        let ended = command.env("DATABASE_URL", &self.url).args(args).output().await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        if ended.status.success() { Ok(text(ended.stdout)) } else { Err(text(ended.stderr)) }
    }

    async fn end(self) {
        let mut admin = PgConnection::connect(&self.server).await.unwrap();
        admin.execute(AssertSqlSafe(format!("DROP DATABASE {} WITH (FORCE)", self.database))).await.unwrap();
    }
}

#[tokio::test]
async fn an_operator_lists_shows_replays_and_discards_dead_letters() {
    let Some(world) = World::new().await else { return };
    let rows = world.dead(&["e-1", "e-2", "e-3"]).await;
    let ids: Vec<String> = rows.iter().map(|row| row.id.to_string()).collect();
    let [first, second, third] = &ids[..] else { panic!("{rows:?}") };
    let line = |id: &str, key: &str| format!("{id}\torder_paid\t{key}\tpermanent\tthe bank refuses {key}\n");
    let run = async |args: &[&str]| world.run(&[&["billing"], args].concat()).await;

    let all = [line(third, "e-3"), line(second, "e-2"), line(first, "e-1")].concat();
    assert_eq!(run(&["list"]).await.unwrap(), all, "newest first");
    assert_eq!(run(&["list", "reason=permanent", "key=e-2"]).await.unwrap(), line(second, "e-2"));
    assert_eq!(run(&["list", "handler=other"]).await.unwrap(), "");

    let shown = run(&["show", first]).await.unwrap();
    for part in [
        "handler   order_paid\n",
        "key       e-1\n",
        "error     the bank refuses e-1\n",
        "tenant",
        r#"{"id": "e-1", "number": 0}"#,
    ] {
        assert!(shown.contains(part), "{part:?} is not in {shown:?}");
    }

    assert_eq!(run(&["replay", first]).await.unwrap(), "it is due now\n");
    assert!(run(&["replay", first]).await.unwrap().starts_with("not replayed: "), "it is no dead letter any more");
    assert_eq!(run(&["discard", second]).await.unwrap(), "deleted\n");
    assert_eq!(run(&["discard", second]).await.unwrap(), "none, or one to resolve\n");
    assert_eq!(run(&["list"]).await.unwrap(), line(third, "e-3"));
    let replayed = run(&["replay-all", "reason=permanent"]).await.unwrap();
    assert!(replayed.contains("due: 1"), "{replayed}");
    assert_eq!(run(&["list"]).await.unwrap(), "");
    world.end().await;
}

#[tokio::test]
async fn an_operator_replays_what_needs_force_or_a_new_key() {
    let Some(world) = World::new().await else { return };
    let rows = world.dead(&["e-1", "e-1", "commits"]).await;
    let ids: Vec<String> = rows.iter().map(|row| row.id.to_string()).collect();
    let [first, conflict, committed] = &ids[..] else { panic!("{rows:?}") };
    let run = async |args: &[&str]| world.run(&[&["billing"], args].concat()).await.unwrap();

    assert!(run(&["replay", committed]).await.contains("replay-by-force"), "its effects may be there");
    assert!(run(&["replay-by-force", conflict]).await.contains("replay-as"), "force finds no key for it");
    assert!(run(&["replay-as", conflict, "e-1"]).await.contains("has the new key"), "it is that of the first one");
    assert_eq!(run(&["replay-all"]).await, "ReplayedAll { due: 1, needs_force: 1, needs_key: 1, unresolved: 0 }\n");

    assert_eq!(run(&["replay-by-force", committed]).await, "it is due now\n");
    assert_eq!(run(&["replay-as", conflict, "e-1-corrected"]).await, "it is due now\n");
    assert_eq!(run(&["list"]).await, "");
    assert!(run(&["replay-by-force", first]).await.contains("no such dead letter"), "it is due since `replay-all`");
    world.end().await;
}

#[tokio::test]
async fn a_mistake_of_an_operator_is_an_error_that_says_what_to_write() {
    let Some(world) = World::new().await else { return };
    world.dead(&[]).await;
    let cases: [(&[&str], &str); 5] = [
        (&[], "CONSUMER list|show|replay|replay-by-force|replay-as|replay-all|discard"),
        (&["billing", "list", "reason=broken"], "no reason: exhausted, permanent"),
        (&["billing", "list", "e-1"], "say handler=.., reason=.. or key=.."),
        (&["billing", "show", "7"], "there is no such row"),
        (&["biling", "list"], "biling"),
    ];
    for (args, part) in cases {
        let error = world.run(args).await.unwrap_err();
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
    world.end().await;
}
