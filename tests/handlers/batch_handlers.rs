//! A handler that takes a `Batch` is called with all new messages at once.
#![allow(unused_qualifications, reason = "a `Batch` can be written with a path")]

use std::time::Duration;

use idem::handler::Input;
use idem::prelude::*;
use idem_test::Broker;
use sqlx::SqliteConnection;
use tokio::sync::oneshot;

mod ours {
    pub(crate) type Batches = Vec<u64>;
}

#[idempotent(key = "0")]
async fn takes_many(
    paid: Batch<(String, u64)>,
    calls: State<Calls>,
    tx: &mut SqliteConnection,
) -> Result<(), BoxError> {
    let ids = paid.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>().join(" ");
    sqlx::query("CREATE TABLE IF NOT EXISTS paid (ids TEXT)").execute(&mut *tx).await?;
    sqlx::query("INSERT INTO paid (ids) VALUES (?)").bind(&ids).execute(tx).await?;
    calls.0.0.send(ids)?;
    Ok(())
}

#[derive(Clone, Debug)]
struct Calls(std::sync::mpsc::Sender<String>);

#[idempotent(key = position)]
async fn takes_many_by_its_path(_: idem::Batch<u64>, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

#[idempotent(key = position)]
async fn takes_one(_: Vec<u64>, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

#[idempotent(key = position)]
async fn has_a_like_name(_: ours::Batches, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

const fn takes_batches<H: Handler>() -> bool {
    <H::Input as Input<H::Message>>::TAKES_BATCH
}

#[test]
fn a_batch_takes_batches_and_nothing_else_does() {
    assert!(takes_batches::<takes_many>() && takes_batches::<takes_many_by_its_path>());
    assert!(!takes_batches::<takes_one>() && !takes_batches::<has_a_like_name>());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_message_is_in_one_call() -> Result<(), BoxError> {
    let file = tempfile::NamedTempFile::new()?;
    let store = Sqlite::connect(&format!("sqlite://{}", file.path().display())).await?;
    let broker = Broker::new();
    for id in ["a", "b", "a", "c"] {
        broker.publish("paid", idem_test::Publication::json(&(id, 1))?);
    }
    let (calls, seen) = std::sync::mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = Worker::new("billing", store, broker.queue("paid")).state(Calls(calls)).batch(10);
    let worker = worker.linger(Duration::from_millis(50)).concurrency(1).handler::<takes_many>();
    let worker = tokio::spawn(worker.run_until(async {
        let _ = stopped.await;
    }));
    tokio::time::timeout(Duration::from_secs(30), broker.queue("paid").idle()).await?;
    drop(stop);
    worker.await??;
    let mut ids: Vec<String> =
        seen.iter().flat_map(|ids| ids.split(' ').map(str::to_owned).collect::<Vec<_>>()).collect();
    ids.sort();
    assert_eq!(ids, ["a", "b", "c"]);
    Ok(())
}
