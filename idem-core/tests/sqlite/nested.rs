//! Handlers that nest transactions: sqlx turns them into savepoints, and the outer transaction is not affected.

use idem_core::store::{CommitResult, Transactions};
use sqlx::{Connection, SqliteConnection};

use crate::world::{World, lent, run};

async fn insert(connection: &mut SqliteConnection, id: i64) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO effects VALUES (?1)").bind(id).execute(connection).await.map(|_| ())
}

#[tokio::test]
async fn a_nested_transaction_that_was_left_open_goes_with_ours() {
    let world = World::new().await;
    for (key, commit, effects) in [("a", false, 0), ("b", true, 1), ("c", true, 2)] {
        let mut txn = world.claimed(key).await;
        let mut nested = lent(&mut txn).begin().await.unwrap();
        insert(&mut nested, effects).await.unwrap();
        std::mem::forget(nested);
        if commit {
            assert!(matches!(world.store.commit(txn).await, CommitResult::Done));
        } else {
            world.store.rollback(txn).await.unwrap();
        }
        assert_eq!(world.count("effects").await, effects);
    }
}

#[tokio::test]
async fn the_first_transaction_of_a_new_connection_and_a_later_one_nest_alike() {
    let world = World::new().await;
    // The drop closes the connection, so the next one is new.
    drop(world.claimed("dropped").await);
    for key in ["first", "second"] {
        let mut txn = world.claimed(key).await;
        let nested = lent(&mut txn).begin().await.unwrap();
        nested.rollback().await.unwrap();
        run(&mut txn, "SELECT 1").await.unwrap();
        assert!(matches!(world.store.commit(txn).await, CommitResult::Done));
    }
}

#[tokio::test]
async fn a_handler_that_made_sqlx_lose_count_and_failed_does_not_spoil_the_next_one() {
    let world = World::new().await;
    let mut txn = world.claimed("k").await;
    // The failed begin makes sqlx roll back and reset its depth to 0; the transaction that is open now is the
    // handler's.
    assert!(lent(&mut txn).begin_with("BEGIN IMMEDIATE").await.is_err());
    run(&mut txn, "BEGIN").await.unwrap();
    world.store.rollback(txn).await.unwrap();

    let mut txn = world.claimed("next").await;
    lent(&mut txn).begin().await.unwrap().commit().await.unwrap();
    assert_eq!(world.count("idem_processed_messages").await, 0, "the nested commit was ours");
    assert!(matches!(world.store.commit(txn).await, CommitResult::Done));
}
