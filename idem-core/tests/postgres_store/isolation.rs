//! The isolation of the transactions of messages.

use idem_core::store::postgres::{Isolation, Txn};
use idem_core::store::{ClaimState, Claimed, CommitResult, StoreError, Transactions};
use sqlx::Executor;

use crate::world::{DEADLINE, World, handler_connection, world_with};

async fn serializable() -> Option<World> {
    world_with(|options| options.isolation(Isolation::Serializable)).await
}

async fn level(txn: &mut Txn) -> String {
    let shown = sqlx::query_scalar("SHOW transaction_isolation");
    shown.fetch_one(handler_connection(txn)).await.unwrap()
}

#[tokio::test]
async fn handlers_run_with_the_isolation_that_was_chosen() {
    for (chosen, name) in [
        (Isolation::ReadCommitted, "read committed"),
        (Isolation::RepeatableRead, "repeatable read"),
        (Isolation::Serializable, "serializable"),
    ] {
        let Some(world) = world_with(|options| options.isolation(chosen)).await else { return };
        let mut begun = world.store.begin(DEADLINE).await.unwrap();
        let mut guarded = world.store.begin_first(DEADLINE, None).await.unwrap().0;
        let mut claimed = world.claimed("a").await;
        for txn in [&mut begun, &mut guarded, &mut claimed] {
            assert_eq!(level(txn).await, name);
        }
        drop((begun, guarded, claimed));
    }
}

/// It waits for the other claim, and its snapshot does not show it.
#[tokio::test]
async fn a_claim_that_waited_under_another_isolation_is_made_again_and_finds_a_duplicate() {
    let Some(mut world) = serializable().await else { return };
    let identity = world.identity("a");
    let first = world.claimed("a").await;
    let (store, copy) = (world.store.clone(), identity.clone());
    let second = tokio::spawn(async move { store.begin_first(DEADLINE, Some(&copy)).await });
    let waits = "SELECT count(*) FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
                 WHERE a.wait_event_type = 'Lock' AND l.relation = 'processed_messages'::regclass";
    while world.number(waits).await == 0 {
        tokio::task::yield_now().await;
    }
    assert!(matches!(world.store.commit(first).await, CommitResult::Done));
    match second.await.unwrap() {
        Ok((_, Claimed::Found(Some(_)))) | Err(StoreError::Serialization(_)) => {}
        other => panic!("{:?}", other.map(|(_, claimed)| claimed)),
    }
    let (txn, again) = world.store.begin_first(DEADLINE, Some(&identity)).await.unwrap();
    assert!(matches!(again, Claimed::Found(Some(_))), "{again:?}");
    world.store.rollback(txn).await.unwrap();
}

/// Two withdrawals that each see the balance before the other one.
#[tokio::test]
async fn of_two_serializable_transactions_that_do_not_see_each_other_one_is_to_be_retried() {
    let Some(mut world) = serializable().await else { return };
    let mut txns = Vec::new();
    for key in ["a", "b"] {
        let mut txn = world.store.begin(DEADLINE).await.unwrap();
        world.store.claim(&mut txn, &[&world.identity(key)], ClaimState::Processed).await.unwrap();
        let withdraw =
            format!("INSERT INTO {}.effects SELECT '{key}' WHERE (SELECT count(*) FROM {0}.effects) < 1", world.schema);
        handler_connection(&mut txn).execute(sqlx::AssertSqlSafe(withdraw)).await.unwrap();
        txns.push(txn);
    }
    let mut ends = Vec::new();
    for txn in txns {
        ends.push(world.store.commit(txn).await);
    }
    assert!(matches!(ends[..], [CommitResult::Done, CommitResult::Retry(_)]), "{ends:?}");
    assert_eq!(world.number("SELECT count(*) FROM effects").await, 1);
}
