//! The single writer: its queue, its connection, and other processes.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use idem_core::Sqlite;
use idem_core::store::{ClaimState, CommitResult, Consumers, InboxRows, LookBack, StoreError, Transactions};

use crate::guard::ENDLESS;
use crate::world::{LONG, World, run};

/// Polls once; a queued future has its place in the queue from then on.
async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

#[tokio::test]
async fn writers_of_all_handles_to_a_file_take_turns_in_the_order_in_which_they_came() {
    let world = World::new().await;
    std::fs::create_dir(world.dir.path("sub")).unwrap();
    let other = Sqlite::connect(world.dir.path("sub/../orders.db")).await.unwrap();
    let stores = [world.store.clone(), other];
    let first = world.store.begin(LONG).await.unwrap();
    let (order, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let mut waiting = Vec::new();
    for turn in 0..20 {
        let (store, order) = (stores[turn % 2].clone(), order.clone());
        let mut turn = Box::pin(async move {
            let txn = store.begin(LONG).await.unwrap();
            order.send(turn).unwrap();
            assert!(matches!(store.commit(txn).await, CommitResult::Done));
        });
        assert!(poll_once(turn.as_mut()).await.is_pending());
        waiting.push(turn);
    }
    world.store.rollback(first).await.unwrap();
    // The last ones are polled first.
    waiting.reverse();
    for turn in waiting {
        tokio::spawn(turn);
    }
    drop(order);
    let mut order = Vec::new();
    while let Some(turn) = ended.recv().await {
        order.push(turn);
    }
    assert_eq!(order, (0..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn sixteen_writers_are_never_busy() {
    let world = World::new().await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..16 {
        let (store, identity) = (world.store.clone(), (0..20).map(|n| world.identity(&format!("{writer}/{n}"))));
        let identities = identity.collect::<Vec<_>>();
        writers.spawn(async move {
            for identity in identities {
                let mut txn = store.begin(LONG).await.unwrap();
                store.claim(&mut txn, &[&identity], ClaimState::Processed).await.unwrap();
                assert!(matches!(store.commit(txn).await, CommitResult::Done));
            }
        });
    }
    writers.join_all().await;
    assert_eq!(world.count("idem_processed_messages WHERE processed_at IS NOT NULL").await, 320);
}

#[tokio::test]
async fn another_process_that_holds_the_writer_makes_us_busy_and_nothing_else() {
    let world = World::new().await;
    let mut other = world.outsider().await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    assert!(matches!(world.store.begin(LONG).await, Err(StoreError::LockTimeout)));
    assert!(matches!(world.store.dead_letter_crashed(&[world.handler], LONG).await, Err(StoreError::LockTimeout)));
    // Reading continues, and a database that another process writes to is not an outage.
    world.store.poll_due(&[world.handler], LONG, LookBack::default()).await.unwrap();
    let begun = Instant::now();
    world.store.ping().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2));
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    world.process("k").await;
}

#[tokio::test]
async fn a_dropped_transaction_is_rolled_back_and_the_next_begins_at_once_even_in_the_middle_of_a_statement() {
    let world = World::new().await;
    let mut txn = world.claimed("k").await;
    run(&mut txn, "INSERT INTO effects VALUES (1)").await.unwrap();
    {
        let mut endless = pin!(run(&mut txn, ENDLESS));
        assert!(poll_once(endless.as_mut()).await.is_pending());
    }
    let begun = Instant::now();
    drop(txn);
    world.process("k").await;
    assert!(begun.elapsed() < Duration::from_secs(4), "the next one waited for the busy timeout");
    assert_eq!(world.count("effects").await, 0);
}

#[tokio::test]
async fn reading_does_not_wait_for_the_writer_and_sees_nothing_of_it() {
    let world = World::new().await;
    world.store("scheduled", Ok(Duration::ZERO)).await;
    let mut txn = world.claimed("k").await;
    run(&mut txn, "DELETE FROM idem_inbox_messages").await.unwrap();
    assert_eq!(world.store.stats(&[world.handler]).await.unwrap().scheduled, 1);
    assert!(world.store.poll_due(&[world.handler], LONG, LookBack::default()).await.unwrap().ordinary);
    assert!(world.store.handlers(Some("billing")).await.unwrap()[0].has_rows);
    world.store.ping().await.unwrap();
    drop(txn);
}

#[tokio::test]
async fn a_file_that_vanished_or_broke_is_an_outage_that_names_it() {
    let world = World::new().await;
    drop(world.store.begin(LONG).await.unwrap());
    let path = world.dir.path("orders.db");
    std::fs::rename(&path, world.dir.path("moved.db")).unwrap();
    // The connection was closed, so the file must be reopened; no empty one is created in its place.
    let fault = world.store.begin(LONG).await.unwrap_err();
    let StoreError::Unavailable(error) = fault else { panic!("{fault:?}") };
    assert!(error.to_string().contains(&path), "{error}");
    assert!(!std::fs::exists(&path).unwrap());
}

#[tokio::test]
async fn a_writer_that_lost_its_tables_says_what_to_do() {
    let world = World::new().await;
    world.sql("DROP TABLE idem_pruner").await;
    let fault = world.store.ping().await.unwrap_err();
    let StoreError::Unavailable(error) = fault else { panic!("{fault:?}") };
    assert!(error.to_string().contains("Sqlite::migrations()"), "{error}");
}
