//! The relay suite over PostgreSQL.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "worlds/postgres.rs"]
mod world;

use std::time::{Duration, Instant};

use idem_conformance::store::{Setup, World};
use idem_core::store::{LeaseRequest, OutboxRead, OutboxRow, OutboxRows, Page, PublishFailure, RowRef, StoreError};
use idem_core::{Outgoing, Postgres, Relay, RetryPolicy, Sink, SinkError, StagedMessage, StoreOutbox};
use idem_test::tap::SinkTap;
use idem_test::tapped_store::{StoreTap, TappedStore};
use idem_test::{MemorySink, Reply, TappedSink};
use sqlx::{Connection, PgConnection, raw_sql};
use uuid::Uuid;
use world::PostgresWorld;

idem_conformance::relay_suite!(PostgresWorld);

/// A store, and a connection that stages messages there.
async fn scene() -> Option<(PostgresWorld, Postgres, PgConnection)> {
    let world = PostgresWorld::make().await?;
    let store = world.store(Setup::default()).await.unwrap();
    let own = PgConnection::connect(&world.url).await.unwrap();
    Some((world, store, own))
}

/// Stages and commits.
async fn stage(
    outbox: &StoreOutbox<Postgres>,
    connection: &mut PgConnection,
    messages: impl IntoIterator<Item = Outgoing>,
) {
    let mut tx = connection.begin().await.unwrap();
    outbox.stage(&mut tx, messages).await.unwrap();
    tx.commit().await.unwrap();
}

/// The texts of what was published, in their order.
fn texts(sink: &MemorySink) -> Vec<String> {
    sink.published().iter().map(|message| String::from_utf8_lossy(message.payload()).into_owned()).collect()
}

/// The order of a key holds although an earlier transaction of it commits long after later messages of other keys were
/// published, and it is found without waiting for the search of all that is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_commits_late_is_published_before_later_ones_of_its_key() {
    let Some((world, store, mut own)) = scene().await else { return };
    let outbox = store.outbox("billing");
    let sink = MemorySink::new();
    let relay = tokio::spawn(Relay::new("billing", store.clone(), sink.clone()).run_until(std::future::pending()));
    let message = |text: &str| Outgoing::new("orders", text.to_owned()).key("k");
    let mut first = PgConnection::connect(&world.url).await.unwrap();
    stage(&outbox, &mut own, [message("before")]).await;
    sink.wait_for(|sink| sink.published().len() == 1).await;
    let mut late = first.begin().await.unwrap();
    outbox.stage(&mut late, [message("late")]).await.unwrap();
    // The low-water marks advance beyond its id.
    let began = Instant::now();
    let mut others = 0;
    while began.elapsed() < Duration::from_secs(7) {
        stage(&outbox, &mut own, [message(&format!("other {others}"))]).await;
        others += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let began = Instant::now();
    late.commit().await.unwrap();
    stage(&outbox, &mut own, [message("later")]).await;
    tokio::time::timeout(Duration::from_secs(20), sink.wait_for(|sink| sink.published().len() == others + 3))
        .await
        .unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let texts = texts(&sink);
    let place = |text: &str| texts.iter().position(|other| other == text).unwrap();
    // One that was staged just before the commit may not have been read by then.
    assert!(place("late") < place("later") && place("late") + 5 > others, "{texts:?}");
    assert_eq!(texts.len(), others + 3, "each once");
    assert!(StoreOutbox::new(&store, "billing").list(Page::default()).await.unwrap().is_empty());
    relay.abort();
}

/// Reads take some time, so that one nearly always runs.
#[derive(Clone)]
struct SlowReads;

impl StoreTap for SlowReads {
    async fn before(&self, method: &'static str, _: &[u8]) -> Result<(), StoreError> {
        if method == "read_outbox" {
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        Ok(())
    }
}

/// A trigger keeps the rows that a relay deletes. Their copies are published again, but not at full speed.
#[tokio::test(flavor = "multi_thread")]
async fn messages_that_cannot_be_deleted_are_published_again_after_a_while() {
    let Some((world, store, mut own)) = scene().await else { return };
    let (keep, messages) = (world.name("keep"), world.own("outbox_messages"));
    let function = format!("CREATE FUNCTION {keep}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$");
    let trigger = format!("CREATE TRIGGER keep BEFORE DELETE ON {messages} FOR EACH ROW EXECUTE FUNCTION {keep}()");
    let (outbox, sink) = (store.outbox("billing"), MemorySink::new());
    stage(&outbox, &mut own, [Outgoing::new("orders", "kept")]).await;
    world.run(&format!("{function}; {trigger}")).await;
    let slow = TappedStore::new(store.clone(), SlowReads);
    let relay = Relay::new("billing", slow, sink.clone()).poll_interval(Duration::from_millis(5));
    let relay = tokio::spawn(relay.run_until(std::future::pending()));
    sink.wait_for(|sink| sink.calls() >= 2).await;
    let before = sink.calls();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let copies = sink.calls() - before;
    assert!(copies < 10, "{copies} copies in two seconds");
    world.run(&format!("DROP TRIGGER keep ON {messages}")).await;
    tokio::time::timeout(Duration::from_secs(20), async {
        while world.number(&format!("SELECT count(*) FROM {messages}")).await > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    relay.abort();
}

/// A sink takes some time for each message.
struct Slow;

impl SinkTap for Slow {
    async fn publish<K: Sink>(&self, sink: &K, message: &StagedMessage) -> Result<(), SinkError> {
        sink.publish(message).await?;
        tokio::time::sleep(Duration::from_millis(10)).await;
        Ok(())
    }
}

/// A transaction with many messages commits behind later ones, and the broker is slow: what is not read yet of it is in
/// front of what is staged meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_transaction_of_many_messages_is_not_jumped_over() {
    let Some((world, store, mut own)) = scene().await else { return };
    let outbox = store.outbox("billing");
    let sink = MemorySink::new();
    let relay = Relay::new("billing", store.clone(), TappedSink::new(sink.clone(), Slow)).concurrency(1);
    let relay = tokio::spawn(relay.run_until(std::future::pending()));
    let message = |text: String| Outgoing::new("orders", text).key("k");
    let mut first = PgConnection::connect(&world.url).await.unwrap();
    let mut late = first.begin().await.unwrap();
    outbox.stage(&mut late, (0..500).map(|n| message(format!("{n:03}")))).await.unwrap();
    stage(&outbox, &mut own, [message("before".to_owned())]).await;
    sink.wait_for(|sink| sink.published().len() == 1).await;
    late.commit().await.unwrap();
    // The low-water marks advance, while most of it is not read yet.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(sink.published().len() < 450, "the broker is too quick for this test");
    stage(&outbox, &mut own, [message("later".to_owned())]).await;
    tokio::time::timeout(Duration::from_secs(25), sink.wait_for(|sink| sink.published().len() == 502)).await.unwrap();
    let texts = texts(&sink).split_off(1);
    assert!(texts.is_sorted() && texts.len() == 501, "{texts:?}");
    relay.abort();
}

/// A transaction with more messages of a key than are kept commits behind a message that did not wait for it, and that fails
/// then: what is not kept of it stays in front of all that comes later.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_lets_nothing_jump_over_a_late_transaction_of_many_messages() {
    let Some((world, store, mut own)) = scene().await else { return };
    let (outbox, sink) = (store.outbox("billing"), MemorySink::new());
    let (fails, failing) = tokio::sync::watch::channel(false);
    sink.on_publish(move |message| match &message.payload()[..] {
        b"before" if !*failing.borrow() => Reply::RefuseWhen(failing.clone()),
        _ => Reply::Confirm,
    });
    let retry = RetryPolicy::new().max_attempts(3).min_delay(Duration::from_millis(100)).factor(1.0);
    let relay = Relay::new("billing", store.clone(), sink.clone()).retry(retry);
    let relay = tokio::spawn(relay.publish_timeout(Duration::from_secs(60)).run_until(std::future::pending()));
    let message = |text: String, key: &'static str| Outgoing::new("orders", text).key(key);
    let mut first = PgConnection::connect(&world.url).await.unwrap();
    let mut late = first.begin().await.unwrap();
    outbox.stage(&mut late, (0..150).map(|n| message(format!("{n:03}"), "k"))).await.unwrap();
    stage(&outbox, &mut own, [message("before".to_owned(), "k")]).await;
    sink.wait_for(|sink| sink.calls() == 1).await;
    // The low-water marks advance beyond their ids.
    let (began, mut others) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(5) {
        stage(&outbox, &mut own, [message("other".to_owned(), "l")]).await;
        others += 1;
        sink.wait_for(|sink| sink.published().len() == others).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    late.commit().await.unwrap();
    // A read that finds these has found the late ones.
    for _ in 0..3 {
        stage(&outbox, &mut own, [message("other".to_owned(), "l")]).await;
        others += 1;
        sink.wait_for(|sink| sink.published().len() == others).await;
    }
    stage(&outbox, &mut own, [message("later".to_owned(), "k")]).await;
    fails.send_replace(true);
    let all = sink.wait_for(|sink| sink.published().len() == others + 152);
    tokio::time::timeout(Duration::from_secs(25), all).await.unwrap();
    let texts: Vec<String> = texts(&sink).into_iter().filter(|text| text != "other").collect();
    let late = (0..150).map(|n| format!("{n:03}"));
    let expected = std::iter::once("before".to_owned()).chain(late).chain(["later".to_owned()]);
    assert_eq!(texts, expected.collect::<Vec<_>>());
    relay.abort();
}

/// Index entries of deleted messages stay as long as a snapshot may need them, and are not read at each poll: neither while
/// transactions of some seconds begin and end all the time.
#[tokio::test(flavor = "multi_thread")]
async fn dead_index_entries_are_not_read_again_and_again() {
    const DEAD: i64 = 100_000;
    let Some((world, store, mut own)) = scene().await else { return };
    let outbox = store.outbox("billing");
    stage(&outbox, &mut own, [Outgoing::new("orders", "")]).await;
    let mut dump = PgConnection::connect(&world.url).await.unwrap();
    raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").execute(&mut dump).await.unwrap();
    let table = world.own("outbox_messages");
    let columns = "outbox_id, message_id, destination, envelope, payload";
    world
        .run(&format!(
            "INSERT INTO {table} ({columns}) SELECT outbox_id, message_id, destination, envelope, payload \
             FROM {table}, generate_series(1, {DEAD}) AS n; DELETE FROM {table}"
        ))
        .await;
    let sink = MemorySink::new();
    let relay = tokio::spawn(Relay::new("billing", store.clone(), sink.clone()).run_until(std::future::pending()));
    let mut short = tokio::task::JoinSet::new();
    for n in 0..10 {
        let url = world.url.clone();
        short.spawn(async move {
            let mut connection = PgConnection::connect(&url).await.unwrap();
            tokio::time::sleep(Duration::from_millis(300 * n)).await;
            loop {
                let text = "BEGIN; SELECT pg_current_xact_id(); SELECT pg_sleep(3); COMMIT";
                raw_sql(text).execute(&mut connection).await.unwrap();
            }
        });
    }
    // Low-water marks follow what is published.
    for n in 0..40 {
        stage(&outbox, &mut own, (0..64).map(|key| Outgoing::new("orders", format!("{n} {key}")).key(key))).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let (schema, name) = table.split_once('.').unwrap();
    let schema = schema.trim_matches('"');
    let read = format!(
        "SELECT idx_tup_read::bigint FROM pg_stat_all_indexes WHERE schemaname = '{schema}' AND relname = '{name}'"
    );
    let before = world.number(&read).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let entries = world.number(&read).await - before;
    println!("{entries} index entries were read in 6 seconds");
    // Counting for the gauges reads them, every 15 seconds, and the second cursor, once a second. Read at each poll, they would be
    // 60 times as many.
    assert!(entries < 10 * DEAD, "{entries}: all of them, again and again");
    relay.abort();
    drop(dump);
}

/// Failures are recorded together or not at all. Otherwise an attempt would be recorded again each time that the dead letters
/// of others could not be written.
#[tokio::test(flavor = "multi_thread")]
async fn no_attempt_is_recorded_if_a_dead_letter_cannot_be_written() {
    let Some((world, store, mut own)) = scene().await else { return };
    let messages = ["again", "dead"].map(|text| Outgoing::new("orders", text).key("k"));
    stage(&store.outbox("billing"), &mut own, messages).await;
    let (outbox, token) = (store.register_outbox("billing").await.unwrap(), Uuid::new_v4());
    store.lease_outbox(outbox, token, LeaseRequest::Hold(Duration::from_secs(60))).await.unwrap();
    let read = async || store.read_outbox(outbox, &OutboxRead::ALL).await.unwrap();
    let found = read().await;
    assert_eq!((found.rows.len(), found.is_cut), (2, false));
    let failure = |at: usize, next| {
        let OutboxRow { id, message, .. } = &found.rows[at];
        let row = RowRef { id: *id, message_id: message.id() };
        PublishFailure { row, attempts: 1, next, error: "no".to_owned() }
    };
    let failures = [failure(0, Some(Duration::ZERO)), failure(1, None)];
    let dead = world.own("outbox_dead");
    world.run(&format!("ALTER TABLE {dead} ADD CONSTRAINT none CHECK (error = '')")).await;
    assert!(store.record_failures(outbox, token, &failures).await.is_err());
    assert!(read().await.rows.iter().all(|row| row.message.attempt() == 1), "an attempt of one of them was recorded");
    world.run(&format!("ALTER TABLE {dead} DROP CONSTRAINT none")).await;
    store.record_failures(outbox, token, &failures).await.unwrap();
    let left = read().await.rows;
    assert_eq!(left.iter().map(|row| row.message.attempt()).collect::<Vec<_>>(), [2]);
    assert_eq!(StoreOutbox::new(&store, "billing").stats(100).await.unwrap().dead, 1);
}

/// A backup is restored beneath a relay: ids go back, and numbers of transactions go on. Messages that are staged then leave in
/// their order.
#[tokio::test(flavor = "multi_thread")]
async fn the_order_of_a_key_holds_behind_a_restore() {
    let Some((world, store, mut own)) = scene().await else { return };
    let (outbox, sink) = (store.outbox("billing"), MemorySink::new());
    let relay = tokio::spawn(Relay::new("billing", store.clone(), sink.clone()).run_until(std::future::pending()));
    for n in 0..5 {
        stage(&outbox, &mut own, (0..44).map(|_| Outgoing::new("orders", "before").key("before"))).await;
        sink.wait_for(|sink| sink.published().len() == 44 * (n + 1)).await;
        // The low-water mark follows.
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let table = world.own("outbox_messages");
    world.run(&format!("TRUNCATE {table}; ALTER TABLE {table} ALTER COLUMN id RESTART WITH 21")).await;
    stage(&outbox, &mut own, (0..320).map(|n| Outgoing::new("orders", format!("{n:03}")).key("k"))).await;
    tokio::time::timeout(Duration::from_secs(20), sink.wait_for(|sink| sink.published().len() >= 540)).await.unwrap();
    let texts = texts(&sink).split_off(220);
    assert!(texts.is_sorted() && texts.len() == 320, "{texts:?}");
    relay.abort();
}
