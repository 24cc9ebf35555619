//! Starts of inbox rows whose fetch, refund or rollback has no answer.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use idem_core::Reason;
use idem_core::store::{FetchFor, FetchLimit, InboxRows, RowKind, RowResult, StoreError};
use tokio::sync::watch;
use uuid::Uuid;

use idem_conformance::store::World;
use idem_conformance::{soon, until};

use super::crashes::{never_runs, orphan_for, schedule};
use super::faulty::Do;
use super::line::Line;
use super::orders::{Act, Order};
use super::settings::Settings;

fn no_answer() -> Do {
    Do::Fail(StoreError::ConnectionLost("no answer".into()))
}

/// The start may be counted, and stays so if the process ends before the row is found. So nothing that could end it
/// starts before.
pub async fn an_orphan_whose_fetch_has_no_answer_is_isolated_until_it_is_found<W: World>(world: W) {
    let line = Line::new(world).await;
    orphan_for(&line, 2, Duration::ZERO).await;
    let (searched, open) = (watch::Sender::new(false), watch::Sender::new(false));
    let (signal, gate, fetched) = (searched.clone(), open.subscribe(), AtomicBool::new(false));
    let hook = move |method: &'static str, _: &[u8]| match method {
        "row_is_fetched" if !fetched.swap(true, SeqCst) => no_answer(),
        "rows_by_token" => {
            signal.send_replace(true);
            Do::Wait(gate.clone())
        }
        _ => Do::Work,
    };
    let worker = line.start_over(hook, Settings::default());
    soon(searched.subscribe().wait_for(|searched| *searched)).await.unwrap();
    line.publish(Order::ok("neighbour"));
    never_runs(&line, "neighbour").await;
    open.send_replace(true);
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    line.desk.go.send_replace(true);
    assert_eq!(line.outcomes(2).await, ["processed", "processed"]);
    worker.stop().await;
    assert_eq!((line.effects("orphan").await, line.effects("neighbour").await), (1, 1));
}

/// A worker was paused beyond the lease of a row, and another process has fetched it. A start that stays counted would
/// bring the message nearer to its end, and a second refund would take the start of another run.
pub async fn a_start_whose_lease_was_lost_is_refunded_once<W: World>(world: W) {
    let (line, hour) = (Line::new(world).await, Duration::from_secs(3600));
    let handler = schedule(&line, "billing", Order::ok("a")).await;
    let (fetched, open, refunds) = (watch::Sender::new(false), watch::Sender::new(false), watch::Sender::new(0));
    let (signal, gate, tried) = (fetched.clone(), open.subscribe(), refunds.clone());
    let hook = move |method: &'static str, _: &[u8]| match method {
        "row_is_fetched" => {
            signal.send_replace(true);
            Do::Wait(gate.clone())
        }
        "refund_start" => {
            tried.send_modify(|tries| *tries += 1);
            Do::Work
        }
        "start_is_refunded" => no_answer(),
        _ => Do::Work,
    };
    let worker = line.start_over(hook, Settings::default());
    soon(fetched.subscribe().wait_for(|fetched| *fetched)).await.unwrap();
    let (table, due) = (line.world.own("inbox_messages"), W::due_earlier(hour));
    line.world.run(&format!("UPDATE {table} SET {due}")).await;
    let (handlers, limit) = ([FetchFor::new(handler, hour)], FetchLimit::rows(RowKind::Orphan, 1));
    let fetched_again = line.store.fetch(&handlers, limit, Uuid::new_v4()).await.unwrap().rows.remove(0);
    open.send_replace(true);
    until(async || line.scheduled().await[0].crash_count <= 1).await;
    assert!(line.store.record_result(&fetched_again, &RowResult::Snoozed { due: Duration::ZERO }).await.unwrap());
    assert_eq!(line.outcomes(1).await, ["processed"]);
    worker.stop().await;
    assert_eq!((line.effects("a").await, *refunds.borrow()), (1, 1));
}

/// Its run has lost the connection, and another process has fetched the row since, and made a dead letter of it. Only a
/// claim with a date says that it was committed.
pub async fn a_row_that_has_died_elsewhere_is_not_reported_as_processed<W: World>(world: W) {
    let (line, hour) = (Line::new(world).await, Duration::from_secs(3600));
    let handler = schedule(&line, "billing", Order::new("a", &[Act::Fail])).await;
    let (broke, open) = (watch::Sender::new(false), watch::Sender::new(false));
    let (signal, gate, lost) = (broke.clone(), open.subscribe(), AtomicBool::new(false));
    let hook = move |method: &'static str, _: &[u8]| match method {
        "rollback" if !lost.swap(true, SeqCst) => no_answer(),
        "record_result" => {
            signal.send_replace(true);
            Do::Wait(gate.clone())
        }
        _ => Do::Work,
    };
    let worker = line.start_over(hook, Settings::default());
    soon(broke.subscribe().wait_for(|broke| *broke)).await.unwrap();
    let (table, due) = (line.world.own("inbox_messages"), W::due_earlier(hour));
    line.world.run(&format!("UPDATE {table} SET {due}")).await;
    let (handlers, limit) = ([FetchFor::new(handler, hour)], FetchLimit::rows(RowKind::Orphan, 1));
    let fetched = line.store.fetch(&handlers, limit, Uuid::new_v4()).await.unwrap().rows.remove(0);
    let dead = RowResult::Failed { next: Err(Reason::Permanent), error: "it has failed elsewhere".to_owned() };
    assert!(line.store.record_result(&fetched, &dead).await.unwrap());
    open.send_replace(true);
    worker.stop().await;
    assert!(line.reports().is_empty(), "{:?}", line.reports());
    assert_eq!(line.one_dead().await.reason, Some(Reason::Permanent));
}
