//! Starts of inbox rows whose count or refund has no answer.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use idem_core::store::{InboxRows, RowKind, RowResult, StoreError, TakeLimit};
use tokio::sync::watch;
use uuid::Uuid;

use crate::soon;
use crate::store::World;

use super::crashes::{never_runs, schedule, suspect_for};
use super::faulty::Do;
use super::line::Line;
use super::orders::Order;
use super::settings::Settings;

fn no_answer() -> Do {
    Do::Fail(StoreError::ConnectionLost("no answer".into()))
}

/// The start may be counted, and is charged if the process ends before the suspect is released. So nothing that could
/// end it starts before.
pub async fn a_suspect_whose_count_has_no_answer_is_isolated_until_it_is_released<W: World>(world: W) {
    let line = Line::new(world).await;
    suspect_for(&line, 2, Duration::ZERO).await;
    let (released, open) = (watch::Sender::new(false), watch::Sender::new(false));
    let (told, gate, counted) = (released.clone(), open.subscribe(), AtomicBool::new(false));
    let hook = move |method: &'static str, _: &[u8]| match method {
        "start_is_counted" if !counted.swap(true, SeqCst) => no_answer(),
        "record_result" => {
            told.send_replace(true);
            Do::Wait(gate.clone())
        }
        _ => Do::Work,
    };
    let worker = line.start_over(hook, Settings::default());
    soon(released.subscribe().wait_for(|released| *released)).await.unwrap();
    line.publish(Order::ok("neighbour"));
    never_runs(&line, "neighbour").await;
    open.send_replace(true);
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    line.desk.go.send_replace(true);
    assert_eq!(line.outcomes(2).await, ["processed", "processed"]);
    worker.stop().await;
    assert_eq!((line.effects("suspect").await, line.effects("neighbour").await), (1, 1));
}

/// The table is locked, for instance by a new index. So nothing is counted, and the release waits for as long.
pub async fn a_suspect_whose_count_is_refused_keeps_no_delivery_waiting<W: World>(world: W) {
    let line = Line::new(world).await;
    suspect_for(&line, 2, Duration::ZERO).await;
    let (released, open) = (watch::Sender::new(false), watch::Sender::new(false));
    let (told, gate, counted) = (released.clone(), open.subscribe(), AtomicBool::new(false));
    let hook = move |method: &'static str, _: &[u8]| match method {
        "start_is_counted" if !counted.swap(true, SeqCst) => Do::Fail(StoreError::LockTimeout),
        "record_result" => {
            told.send_replace(true);
            Do::Wait(gate.clone())
        }
        _ => Do::Work,
    };
    let worker = line.start_over(hook, Settings::default());
    soon(released.subscribe().wait_for(|released| *released)).await.unwrap();
    line.publish(Order::ok("neighbour"));
    assert_eq!(line.outcomes(1).await, ["processed"]);
    open.send_replace(true);
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    line.desk.go.send_replace(true);
    assert_eq!(line.outcomes(2).await, ["processed", "processed"]);
    worker.stop().await;
    assert_eq!((line.effects("suspect").await, line.effects("neighbour").await), (1, 1));
}

/// A worker was paused beyond the lease of a row, and another process has reserved it. A start that stays counted would
/// bring the message nearer to its end, and a second refund would take the start of another run.
pub async fn a_refund_that_fails_is_repeated_until_it_may_be_written<W: World>(world: W) {
    let (line, hour) = (Line::new(world).await, Duration::from_secs(3600));
    let handler = schedule(&line, "billing", Order::ok("a")).await;
    let (taken, open, refunds) = (watch::Sender::new(false), watch::Sender::new(false), watch::Sender::new(0));
    let (told, gate, tried) = (taken.clone(), open.subscribe(), refunds.clone());
    let hook = move |method: &'static str, _: &[u8]| match method {
        "row_is_taken" => {
            told.send_replace(true);
            Do::Wait(gate.clone())
        }
        "refund_start" => {
            tried.send_modify(|tries| *tries += 1);
            if *tried.borrow() < 3 { Do::Fail(StoreError::LockTimeout) } else { Do::Work }
        }
        "start_is_refunded" => no_answer(),
        _ => Do::Work,
    };
    let worker = line.start_over(hook, Settings::default());
    soon(taken.subscribe().wait_for(|taken| *taken)).await.unwrap();
    let (table, due) = (line.world.own("inbox_messages"), W::due_earlier(hour));
    line.world.run(&format!("UPDATE {table} SET {due}")).await;
    let (handlers, limit) = ([handler], TakeLimit::rows(1));
    let reserved = line.store.take(&handlers, RowKind::Suspect, limit, Uuid::new_v4(), hour).await.unwrap().remove(0);
    open.send_replace(true);
    soon(async {
        while line.scheduled().await[0].crash_count > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(line.store.record_result(&reserved, &RowResult::Released { due: Duration::ZERO }).await.unwrap());
    assert_eq!(line.outcomes(1).await, ["processed"]);
    worker.stop().await;
    assert_eq!((line.effects("a").await, *refunds.borrow()), (1, 3));
}
