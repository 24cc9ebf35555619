//! How database errors are classified.

use std::time::Duration;

use idem_core::Delivery;
use idem_core::store::{ClaimState, InboxRows, NewRow, StoreError, Transactions};

use crate::world::{LONG, World, run};

/// Makes a claim and stores a row of `bytes` bytes, on a connection with this setting.
async fn stores(world: &World, key: &str, bytes: usize, set: &'static str) -> Result<(), StoreError> {
    let identity = world.identity(key);
    let delivery = Delivery::new("orders", vec![0; bytes]);
    let mut txn = world.store.begin(LONG).await?;
    run(&mut txn, set).await.unwrap();
    world.store.claim(&mut txn, &[&identity], ClaimState::Waiting).await?;
    let row = NewRow::new(&identity, &delivery, Ok(Duration::ZERO));
    world.store.insert(&mut txn, &[row]).await?;
    world.store.rollback(txn).await.map(drop)
}

#[tokio::test]
async fn a_full_and_a_read_only_database_are_the_databases_fault() {
    let world = World::new().await;
    for (set, says) in [("PRAGMA max_page_count = 1", "is full"), ("PRAGMA query_only = 1", "read-only")] {
        let fault = stores(&world, "a", 1_000_000, set).await.unwrap_err();
        let StoreError::Unavailable(error) = fault else { panic!("{set}: {fault:?}") };
        assert!(error.to_string().contains(says), "{set}: {error}");
    }
    stores(&world, "a", 1_000_000, "SELECT 1").await.unwrap();
}

#[tokio::test]
async fn a_constraint_of_the_user_is_the_messages_fault() {
    let world = World::new().await;
    let trigger = "CREATE TRIGGER small BEFORE INSERT ON idem_inbox_messages WHEN length(NEW.payload) > 100
                   BEGIN SELECT RAISE(ABORT, 'too large'); END";
    world.sql(trigger).await;
    let fault = stores(&world, "a", 101, "SELECT 1").await.unwrap_err();
    let StoreError::Message(error) = fault else { panic!("{fault:?}") };
    assert!(error.to_string().contains("triggers"), "{error}");
    stores(&world, "b", 100, "SELECT 1").await.unwrap();
}
