//! The outcome of a transaction whose connection was dropped.

use idem_core::store::{Transactions, TxnHandle, TxnOutcome};
use sqlx::Executor;

use crate::world::{DEADLINE, backend, gone, handler_connection, raw, world};

#[tokio::test]
async fn a_commit_of_the_handler_is_known_on_another_connection() {
    let Some(world) = world().await else { return };
    let mut txn = world.claimed("a").await;
    let txn_handle = world.store.txn_handle(&txn).unwrap();
    raw(&mut txn, "COMMIT").await;
    drop(txn);
    assert_eq!(world.store.txn_outcome(&txn_handle).await.unwrap(), TxnOutcome::CommittedEarly);
}

/// As after a crash of the server.
#[tokio::test]
async fn a_number_that_was_given_to_another_transaction_tells_nothing() {
    let Some(world) = world().await else { return };
    for name in ["single", "batch"] {
        let txn = if name == "batch" { world.claimed_many(&["a", "b"]).await } else { world.claimed("a").await };
        let mut txn_handle = world.store.txn_handle(&txn).unwrap();
        world.store.rollback(txn).await.unwrap();
        let mut other = world.claimed(&format!("other-{name}")).await;
        txn_handle.number = world.store.txn_handle(&other).unwrap().number;
        raw(&mut other, "COMMIT").await;
        drop(other);
        assert_eq!(world.store.txn_outcome(&txn_handle).await.unwrap(), TxnOutcome::RolledBack, "{name}");
    }
}

/// The server may have given its number to another transaction, and no claim shows whose it is.
#[tokio::test]
async fn a_number_without_a_claim_proves_nothing() {
    let Some(world) = world().await else { return };
    let mut txn = world.store.begin_first(DEADLINE, None).await.unwrap().0;
    let txn_handle = world.store.txn_handle(&txn).unwrap();
    raw(&mut txn, "COMMIT").await;
    drop(txn);
    assert_eq!(world.store.txn_outcome(&txn_handle).await.unwrap(), TxnOutcome::RolledBack);
}

#[tokio::test]
async fn a_statement_that_goes_on_without_its_client_is_ended() {
    let Some(mut world) = world().await else { return };
    let mut txn = world.claimed("a").await;
    let txn_handle = world.store.txn_handle(&txn).unwrap();
    raw(&mut txn, "SET LOCAL statement_timeout = 0").await;
    let pid = backend(handler_connection(&mut txn)).await;
    let sleep = handler_connection(&mut txn).execute("SELECT pg_sleep(600)");
    let begun = async {
        let asked = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'";
        while sqlx::query_scalar::<_, i64>(asked).bind(pid).fetch_one(&mut world.other).await.unwrap() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        slept = sleep => panic!("{slept:?}"),
        () = begun => {}
    }
    drop(txn);
    // The server looks once a second whether its client is there.
    assert!(matches!(
        world.store.txn_outcome(&txn_handle).await.unwrap(),
        TxnOutcome::Running | TxnOutcome::RolledBack
    ));
    gone(&mut world.other, pid).await;
    assert_eq!(world.store.txn_outcome(&txn_handle).await.unwrap(), TxnOutcome::RolledBack);
    world.process("a").await;
}

#[tokio::test]
async fn a_transaction_without_a_claim_has_no_outcome_to_ask_for() {
    let Some(world) = world().await else { return };
    let txn = world.store.begin(DEADLINE).await.unwrap();
    assert_eq!(world.store.txn_handle(&txn), None);
    world.store.rollback(txn).await.unwrap();
    world.process("a").await;
    let (txn, _) = world.store.begin_first(DEADLINE, Some(&world.identity("a"))).await.unwrap();
    assert_eq!(world.store.txn_handle(&txn), None, "it is a duplicate");
    world.store.rollback(txn).await.unwrap();
}

#[tokio::test]
async fn a_transaction_of_a_server_that_was_ahead_never_happened() {
    let Some(world) = world().await else { return };
    let mut ahead = TxnHandle::default();
    ahead.number = "1000000000000".to_owned();
    assert_eq!(world.store.txn_outcome(&ahead).await.unwrap(), TxnOutcome::RolledBack);
    world.process("a").await;
}
