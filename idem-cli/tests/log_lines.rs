//! The commands at the end of log lines: pasted into a shell, each of them shows what its line is about.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use idem::prelude::*;
use idem_conformance::{captured, subscribe};
use idem_test::{Broker, MemorySink, Publication, Reply};
use serde::{Deserialize, Serialize};
use sqlx::SqliteConnection;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
struct Order {
    id: String,
    fails: bool,
}

#[idempotent(key = "id", name = "order")]
async fn order(order: Order, _tx: &mut SqliteConnection, outbox: Outbox) -> Result<(), BoxError> {
    if order.fails {
        return Err(permanent("refused"));
    }
    outbox.publish("orders.paid", &order)?;
    Ok(())
}

/// Runs a command as somebody does who pastes it into a shell.
fn paste(command: &str, url: &str) -> Output {
    let folder = Path::new(env!("CARGO_BIN_EXE_idem")).parent().unwrap();
    let others = env::var_os("PATH").unwrap_or_default();
    let path: OsString = env::join_paths([folder.to_path_buf()].into_iter().chain(env::split_paths(&others))).unwrap();
    Command::new("sh").args(["-c", command]).env("PATH", path).env("DATABASE_URL", url).output().unwrap()
}

/// The command that ends the line with this text, and what it prints.
fn shown(log: &str, part: &str, url: &str, exit: i32) -> String {
    let line = log.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("no {part:?} in {log}"));
    let command = line.rsplit_once("show=").unwrap_or_else(|| panic!("no command ends {line:?}")).1;
    let output = paste(command, url);
    let [out, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert_eq!(output.status.code(), Some(exit), "{command}: {out}{errors}");
    out
}

#[tokio::test]
async fn the_command_at_the_end_of_a_line_shows_what_it_is_about() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/idem.db", directory.path().display());
    let store = Sqlite::connect(&url).await.unwrap();
    let (text, subscriber) = captured();
    let _log = subscribe(subscriber);
    let (broker, sink) = (Broker::new(), MemorySink::new());
    sink.on_publish(|_| Reply::Refuse("no queue is bound".to_owned()));
    let publish = |id: &str, fails| {
        let order = Publication::json(&Order { id: id.to_owned(), fails }).unwrap();
        broker.publish("orders", order);
    };
    publish("dead", true);
    publish("it's 7; exit 9", false);
    publish("it's 7; exit 9", true);
    let worker = Worker::new("billing", store.clone(), broker.queue("orders")).handler::<order>();
    let relay = Relay::new("billing", store.clone(), sink).retry(RetryPolicy::new().max_attempts(1));
    let (idle, outbox) = (broker.clone(), store.outbox("billing"));
    let done = async move {
        idle.idle().await;
        while outbox.stats(10).await.unwrap().dead == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, Workers::new().add(worker).relay(relay).run_until(done)).await.unwrap().unwrap();

    let log = text.to_string();
    assert!(shown(&log, "reason=permanent", &url, 0).contains("refused"));
    // Without its payload, a message counts as a copy of the one that was processed.
    assert!(shown(&log, "reason=conflict", &url, 11).contains("it's 7; exit 9"));
    assert!(shown(&log, "a message of the outbox is a dead letter", &url, 0).contains("no queue is bound"));
}
