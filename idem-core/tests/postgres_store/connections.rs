//! Connections: cancelled, silent, lost.

use std::time::Duration;

use idem_core::store::{CommitResult, Consumers, FetchLimit, InboxRows, RowKind, StoreError, Transactions};
use sqlx::{Connection, Executor};

use crate::proxy::Proxy;
use crate::world::{DEADLINE, backend, gone, handler_connection, world, world_with};

#[tokio::test]
async fn a_handler_dropped_in_a_long_statement_frees_the_claim() {
    let Some(mut world) = world().await else { return };
    let mut txn = world.claimed("sleeping").await;
    let pid = backend(handler_connection(&mut txn)).await;
    let asleep = sqlx::query("SELECT pg_sleep(600)").execute(handler_connection(&mut txn));
    tokio::time::timeout(Duration::from_millis(50), asleep).await.unwrap_err();
    drop(txn);
    // Within client_connection_check_interval.
    tokio::time::timeout(Duration::from_secs(8), gone(&mut world.other, pid)).await.unwrap();
    world.process("sleeping").await;
}

#[tokio::test]
async fn a_server_that_comes_back_is_not_asked_for_all_connections_at_once() {
    let Some(mut world) = world().await else { return };
    let proxy = Proxy::before(&world.url).await;
    let options = idem_core::Postgres::options(&proxy.url).schema(&world.schema).connections(40);
    world.store = options.connect().await.unwrap();
    let before = proxy.connections();
    proxy.fall_silent();
    let all = (0..30).map(|_| world.store.begin(DEADLINE));
    let ping = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.store.ping().await
    };
    let (refused, ping) = tokio::join!(futures_util::future::join_all(all), ping);
    assert!(refused.into_iter().all(|txn| matches!(txn, Err(StoreError::ConnectionLost(_)))));
    assert!(ping.is_err());
    // Those that wait for their turn time out at about the same time as the first ones, and only then may more
    // connections be opened.
    let made = proxy.connections() - before;
    assert!((5..=9).contains(&made), "{made} connections");
    proxy.recover();
    let txns = futures_util::future::join_all((0..30).map(|_| world.store.begin(DEADLINE))).await;
    assert!(txns.into_iter().all(|txn| txn.is_ok()));
}

#[tokio::test]
async fn one_lost_connection_empties_the_pool_and_a_ping_makes_a_new_one() {
    let Some(mut world) = world().await else { return };
    let proxy = Proxy::before(&world.url).await;
    world.store = idem_core::Postgres::options(&proxy.url).schema(&world.schema).connect().await.unwrap();
    let mut txns = Vec::new();
    for key in ["a", "b", "c"] {
        txns.push(world.claimed(key).await);
    }
    let mut pids = Vec::new();
    for mut txn in txns {
        pids.push(backend(handler_connection(&mut txn)).await);
        world.store.rollback(txn).await.unwrap();
    }
    assert_eq!(proxy.connections(), 3 + 1, "and one of idem's own");
    for pid in &pids {
        sqlx::query("SELECT pg_terminate_backend($1)").bind(pid).execute(&mut world.other).await.unwrap();
        gone(&mut world.other, *pid).await;
    }
    assert!(matches!(world.store.begin(DEADLINE).await, Err(StoreError::ConnectionLost(_))));
    world.store.ping().await.unwrap();
    world.process("afterwards").await;
    assert_eq!(proxy.connections(), 4 + 2);
}

#[tokio::test]
async fn a_server_that_answers_nothing_is_lost_and_a_commit_without_an_answer_is_unknown() {
    let Some(mut world) = world().await else { return };
    let proxy = Proxy::before(&world.url).await;
    world.store = idem_core::Postgres::options(&proxy.url).schema(&world.schema).connect().await.unwrap();
    let committing = world.claimed("silent").await;
    let rolling_back = world.claimed("silent too").await;
    proxy.fall_silent();
    // Only timers can make progress, so that the test's clock jumps to them.
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let answer = world.store.commit(committing).await;
    assert!(matches!(answer, CommitResult::Unknown(_)), "{answer:?}");
    let answer = world.store.rollback(rolling_back).await;
    assert!(matches!(answer, Err(StoreError::ConnectionLost(_))), "{answer:?}");
    assert!(matches!(world.store.begin(DEADLINE).await, Err(StoreError::ConnectionLost(_))));
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    tokio::time::resume();
    proxy.recover();
    world.store.ping().await.unwrap();
}

#[tokio::test]
async fn a_caller_waits_while_all_connections_are_in_use() {
    let Some(world) = world_with(|options| options.connections(2)).await else { return };
    let txn = world.claimed("only").await;
    let waiting = tokio::spawn({
        let store = world.store.clone();
        async move { store.rollback(store.begin(DEADLINE).await.unwrap()).await }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    world.store.ping().await.unwrap();
    world.store.rollback(txn).await.unwrap();
    waiting.await.unwrap().unwrap();
}

/// The wait is no part of the lease: it can be longer than a call may take to begin.
#[tokio::test]
async fn a_lease_of_a_call_begins_once_its_fetch_has_a_connection_and_a_ping_waits_for_none() {
    let Some(mut world) = world_with(|options| options.connections(2)).await else { return };
    let mut lock = world.other.begin().await.unwrap();
    lock.execute("LOCK TABLE handlers").await.unwrap();
    // It has the only connection of idem's own.
    let registers = tokio::spawn({
        let store = world.store.clone();
        async move { store.register("billing", &["new"]).await }
    });
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'handlers'::regclass";
    while sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut *lock).await.unwrap() == 0 {
        tokio::task::yield_now().await;
    }
    let store = world.store.clone();
    let mut fetch = std::pin::pin!(store.fetch(&[], FetchLimit::rows(RowKind::Calling, 1), uuid::Uuid::new_v4()));
    assert!(futures_util::poll!(fetch.as_mut()).is_pending());
    world.store.ping().await.unwrap();
    let freed = std::time::Instant::now();
    lock.rollback().await.unwrap();
    assert!(fetch.await.unwrap().since >= freed);
    let _ = registers.await.unwrap();
}
