//! Outcomes that the database refuses to record.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use idem_core::store::{Consumers, StoreError, Transactions};
use idem_core::{Delivery, HasConnection, Reason};
use tokio::sync::watch;

use idem_conformance::store::World;
use idem_conformance::{soon, until};

use super::crashes::{schedule, schedule_delivery};
use super::endings::waits;
use super::faulty::Do;
use super::line::{Line, sorted};
use super::orders::{Act, Order};
use super::settings::Settings;

/// More rows that are not recorded than run at once, and others that are due after them.
async fn rows<W: World>(line: &Line<W>, acts: &[Act]) {
    let handler = line.store.register("billing", &["", "orders"]).await.unwrap()[1];
    for (id, acts) in [("bad 1", acts), ("bad 2", acts), ("x", &[Act::Ok][..]), ("y", &[Act::Ok]), ("z", &[Act::Ok])] {
        let order = Order::new(id, acts).by_attempt();
        schedule_delivery(line, handler, id, Delivery::new("orders", serde_json::to_vec(&order).unwrap())).await;
    }
}

async fn processed<W: World>(line: &Line<W>, ids: &[&str]) {
    soon(async {
        for id in ids {
            while line.effects(id).await == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    })
    .await;
}

async fn are_dead<W: World>(line: &Line<W>, number: usize) {
    until(async || line.dead().await.len() >= number).await;
    for row in line.dead().await {
        assert_eq!((row.reason, row.attempts), (Some(Reason::Committed), 1));
    }
}

/// A handler has committed, and its dead letter is refused. The only lane goes on, and the dead letter is written as
/// soon as nothing refuses it.
pub async fn a_dead_letter_that_is_refused_costs_no_lane<W: World>(world: W) {
    let Some(line) = Line::new_if(!W::FEATURES.refuses_commit && !world.inbox(), world).await else { return };
    line.refuse("INSERT", "inbox_messages", Some("bad")).await;
    line.publish(Order::new("bad", &[Act::Commit]));
    for id in ["x", "y", "z"] {
        line.publish(Order::ok(id));
    }
    let worker = line.start_with(Settings { concurrency: 1, ..Settings::default() });
    processed(&line, &["x", "y", "z"]).await;
    assert!(line.dead().await.is_empty());
    line.allow("inbox_messages").await;
    are_dead(&line, 1).await;
    worker.stop_once_idle(&line.queue).await;
    assert_eq!(
        sorted(line.outcomes(4).await),
        ["dead: committed by its handler", "processed", "processed", "processed"]
    );
    assert_eq!(line.effects("bad").await, 1);
}

/// The same for rows of the inbox.
pub async fn a_dead_letter_of_a_row_that_is_refused_costs_no_slot<W: World>(world: W) {
    let Some(line) = Line::new_if(!W::FEATURES.refuses_commit, world).await else { return };
    rows(&line, &[Act::Commit]).await;
    line.refuse("INSERT", "inbox_messages", None).await;
    let worker = line.start();
    processed(&line, &["x", "y", "z"]).await;
    assert!(line.dead().await.is_empty());
    line.allow("inbox_messages").await;
    are_dead(&line, 2).await;
    worker.stop().await;
    assert_eq!((line.effects("bad 1").await, line.effects("bad 2").await), (1, 1));
}

/// A handler has committed, and its dead letter is written, but the answer is lost. An operator discards it before the
/// write is repeated.
pub async fn a_dead_letter_that_was_discarded_is_not_written_again<W: World>(world: W) {
    let Some(line) = Line::new_if(!W::FEATURES.refuses_commit, world).await else { return };
    let (again, open) = (watch::Sender::new(false), watch::Sender::new(false));
    let (signal, gate) = (again.clone(), open.subscribe());
    let (writes, answers) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let hook = move |method: &'static str, _: &[u8]| match method {
        "reopen" if writes.fetch_add(1, SeqCst) > 0 => {
            signal.send_replace(true);
            Do::Wait(gate.clone())
        }
        "committed" if writes.load(SeqCst) == 1 && answers.fetch_add(1, SeqCst) == 0 => {
            Do::Fail(StoreError::ConnectionLost("no answer".into()))
        }
        _ => Do::Work,
    };
    line.publish(Order::new("a", &[Act::Commit]));
    let worker = line.start_over(hook, Settings::default());
    soon(again.subscribe().wait_for(|again| *again)).await.unwrap();
    assert!(line.operator().discard(line.one_dead().await.id).await.unwrap());
    open.send_replace(true);
    assert_eq!(line.outcomes(1).await, ["dead: committed by its handler"]);
    worker.stop_once_idle(&line.queue).await;
    assert!(line.dead().await.is_empty());
    line.publish(Order::new("a", &[Act::Commit]));
    assert_eq!(line.run(2).await[1], "duplicate", "its claim is dated");
}

/// A handler has committed, and its claim is deleted before the dead letter is written.
pub async fn a_dead_letter_is_written_although_the_claim_of_its_handler_is_gone<W: World>(world: W) {
    let Some(line) = Line::new_if(!W::FEATURES.refuses_commit, world).await else { return };
    let (begun, open) = (watch::Sender::new(false), watch::Sender::new(false));
    let (signal, gate) = (begun.clone(), open.subscribe());
    let hook = move |method: &'static str, _: &[u8]| match method {
        "reopen" => {
            signal.send_replace(true);
            Do::Wait(gate.clone())
        }
        _ => Do::Work,
    };
    line.publish(Order::new("a", &[Act::Commit]));
    let worker = line.start_over(hook, Settings::default());
    soon(begun.subscribe().wait_for(|begun| *begun)).await.unwrap();
    line.world.run(&format!("DELETE FROM {}", line.world.own("processed_messages"))).await;
    open.send_replace(true);
    assert_eq!(line.outcomes(1).await, ["dead: committed by its handler"]);
    worker.stop().await;
    line.one_dead().await;
}

/// A message has failed as its database goes away. Only the recording is tried again, also if the worker then takes the message
/// together with another one.
pub async fn a_failure_that_is_not_recorded_yet_runs_in_no_batch<W: World>(world: W) {
    let line = Line::new(world).await;
    let inserts = AtomicUsize::new(0);
    let hook = move |method: &'static str, _: &[u8]| match method {
        "insert" if inserts.fetch_add(1, SeqCst) == 0 => Do::Fail(StoreError::Unavailable("no space".into())),
        _ => Do::Work,
    };
    for id in ["a", "b"] {
        line.publish(Order::new(id, &[Act::Fail]));
    }
    let linger = Duration::from_millis(300);
    let worker = line.start_over(hook, Settings { linger, concurrency: 1, ..Settings::late() });
    assert_eq!(line.outcomes(2).await, ["scheduled 1", "scheduled 1"]);
    worker.stop_once_idle(&line.queue).await;
    // The first one ran in a batch, in which it failed, and each ran alone.
    assert_eq!(line.desk.runs("a") + line.desk.runs("b"), 3);
}

/// A row has failed, and its failure cannot be recorded. It is snoozed, and waits longer each time. Its handler does
/// not run again before the failure is recorded.
pub async fn a_failure_of_a_row_that_is_refused_costs_no_slot<W: World>(world: W) {
    // Otherwise there is no statement that adds a constraint.
    let Some(line) = Line::new_if(W::FEATURES.concurrent, world).await else { return };
    rows(&line, &[Act::Fail, Act::Ok]).await;
    let table = line.world.own("inbox_messages");
    line.world.run(&format!("ALTER TABLE {table} ADD CONSTRAINT untried CHECK (attempts = 0)")).await;
    let records = ["bad 1", "bad 2"].map(|_| watch::Sender::new(0));
    let counted = records.clone();
    let hook = move |at: &str, key: &[u8]| {
        for (id, records) in ["bad 1", "bad 2"].iter().zip(&counted) {
            if at == "record_result" && key == id.as_bytes() {
                records.send_modify(|records| *records += 1);
            }
        }
        Do::Work
    };
    let worker = line.start_over(hook, Settings::default());
    processed(&line, &["x", "y", "z"]).await;
    // In each round the record of the failure is rejected, and the row snoozed.
    for row in &records {
        soon(row.subscribe().wait_for(|records| *records > 4)).await.unwrap();
    }
    let scheduled = line.scheduled().await;
    assert!(scheduled.iter().all(|row| row.attempts == 0 && row.lost_connections == 0), "{scheduled:?}");
    let runs = ["bad 1", "bad 2"].map(|id| line.desk.runs(id));
    // In a batch it has run once more, with no attempt recorded.
    let most = if line.world.batch() > 1 { 2 } else { 1 };
    assert!(runs.iter().all(|runs| *runs <= most), "{runs:?}");
    line.world.run(&format!("ALTER TABLE {table} DROP CONSTRAINT untried")).await;
    processed(&line, &["bad 1", "bad 2"]).await;
    worker.stop().await;
    let outcomes = line.outcomes(0).await;
    assert_eq!(outcomes.iter().filter(|outcome| *outcome == "scheduled 1").count(), 2, "{outcomes:?}");
    assert_eq!(["bad 1", "bad 2"].map(|id| line.desk.runs(id)), runs.map(|runs| runs + 1));
    assert!(line.dead().await.is_empty());
}

/// A row has failed while the table of the inbox is locked. Only the recording is tried again, and its handler does not run
/// again.
pub async fn a_failure_of_a_row_is_recorded_again_and_its_handler_not_run_again<W: World>(world: W) {
    let Some(line) = Line::new_if(W::FEATURES.concurrent, world).await else { return };
    schedule(&line, "billing", Order::new("a", &[Act::WaitFail, Act::Ok])).await;
    let records = watch::Sender::new(0);
    let counted = records.clone();
    let hook = move |at: &str, _: &[u8]| {
        if at == "record_result" {
            counted.send_modify(|records| *records += 1);
        }
        Do::Work
    };
    let worker = line.start_over(hook, Settings::late());
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    let mut block = line.store.begin(Duration::from_secs(60)).await.unwrap();
    let table = line.world.own("inbox_messages");
    let lock = format!("SET LOCAL lock_timeout = '20s'; LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE");
    let locked = W::execute(<W::Store as HasConnection<W::Connection>>::connection(&mut block), &lock);
    // The running handler has deleted the row: the lock is granted with its rollback, before the failure is recorded.
    let fails = async {
        waits(&line, true).await;
        line.desk.go.send_replace(true);
    };
    tokio::join!(locked, fails).0.unwrap();
    // The first record ends with a lock timeout, and the second one waits. The lease of the row is longer.
    soon(records.subscribe().wait_for(|records| *records > 1)).await.unwrap();
    line.store.rollback(block).await.unwrap();
    assert_eq!(line.outcomes(1).await, ["scheduled 1"]);
    worker.stop().await;
    let row = &line.scheduled().await[0];
    assert_eq!((line.desk.runs("a"), row.attempts, row.locked_by), (1, 1, None));
}
