//! Settings that are made in a session after its login, by a pooler that lends it for as long as a client is connected.
//! `RESET ALL`, which ends each message, does not return to them.

use std::time::Duration;

use idem_core::Postgres;
use idem_core::store::{CommitResult, Transactions};
use idem_test::conformance::store::{Setup, World};

use crate::role::{Txn, lend};
use crate::world::PgBouncerWorld;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A store that has one connection for handlers, through such a pooler.
async fn behind(connect_query: &str) -> Option<(PgBouncerWorld<true>, Postgres)> {
    let world = PgBouncerWorld::of_sessions(connect_query).await?;
    let store = narrow(&world).await;
    Some((world, store))
}

async fn narrow(world: &PgBouncerWorld<true>) -> Postgres {
    let mut setup = Setup::default();
    setup.connections = Some(2);
    world.undeclared(setup).connect().await.unwrap()
}

/// Begins without a claim in one of two ways.
async fn begun(store: &Postgres, guarded: bool) -> Txn {
    let begun = if guarded { store.begin_guarded(TIMEOUT).await } else { store.begin(TIMEOUT).await };
    begun.unwrap()
}

async fn shown(txn: &mut Txn, setting: &str) -> String {
    let asked = sqlx::query_scalar("SELECT current_setting($1)").bind(setting);
    asked.fetch_one(lend(txn)).await.unwrap()
}

#[tokio::test]
async fn a_natural_handler_keeps_a_lock_timeout_that_a_reset_takes_from_its_session() {
    let Some((_world, store)) = behind("SET lock_timeout = 7000").await else { return };
    for round in 0..3 {
        let mut natural = store.begin_guarded(TIMEOUT).await.unwrap();
        assert_eq!(shown(&mut natural, "lock_timeout").await, "7s", "message {round}");
        assert!(matches!(store.commit(natural).await, CommitResult::Done));
    }
}

/// Also if it has set those with which the session would have started.
#[tokio::test]
async fn each_transaction_sets_its_limits_behind_a_pooler_that_ignores_those_of_a_login() {
    let same = "SET statement_timeout = 20000; SET idle_in_transaction_session_timeout = 30000";
    for (connect_query, limit) in [("SET statement_timeout = 15000", "15s"), (same, "20s")] {
        let Some((_world, store)) = behind(connect_query).await else { return };
        for round in 0..6 {
            let mut txn = begun(&store, round % 2 == 0).await;
            assert_eq!(shown(&mut txn, "statement_timeout").await, limit, "round {round}");
            assert_eq!(shown(&mut txn, "idle_in_transaction_session_timeout").await, "30s", "round {round}");
            store.rollback(txn).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_transaction_is_read_committed_whatever_a_pooler_has_set_in_its_session() {
    let Some((_world, store)) = behind("SET default_transaction_isolation = serializable").await else { return };
    for round in 0..4 {
        let mut txn = begun(&store, round % 2 == 0).await;
        assert_eq!(shown(&mut txn, "transaction_isolation").await, "read committed", "round {round}");
        store.rollback(txn).await.unwrap();
    }
}

/// By chance, the role has the idle timeout with which idem would have started the session.
#[tokio::test]
async fn a_transaction_is_read_committed_whatever_a_reset_returns_to_behind_a_pooler() {
    let role = ["idle_in_transaction_session_timeout = '30s'", "default_transaction_isolation = 'serializable'"];
    let Some(world) = PgBouncerWorld::of_sessions_with_role(&role).await else { return };
    let store = narrow(&world).await;
    for round in 0..4 {
        let mut txn = begun(&store, round % 2 == 0).await;
        assert_eq!(shown(&mut txn, "transaction_isolation").await, "read committed", "round {round}");
        store.rollback(txn).await.unwrap();
    }
    drop(store);
    world.drop_role().await;
}

/// Such a pooler accepts no settings of a login, and lends a session to a transaction only.
#[tokio::test]
async fn each_transaction_sets_its_limits_behind_a_pooler_in_transaction_mode() {
    let Some(world) = <PgBouncerWorld>::make().await else { return };
    let store = world.store(Setup::default()).await.unwrap();
    for guarded in [false, true] {
        let mut txn = begun(&store, guarded).await;
        assert_eq!(shown(&mut txn, "statement_timeout").await, "20s");
        assert_eq!(shown(&mut txn, "idle_in_transaction_session_timeout").await, "30s");
        assert_eq!(shown(&mut txn, "transaction_isolation").await, "read committed");
        store.rollback(txn).await.unwrap();
    }
    let kept = "SELECT count(*) FROM pg_settings WHERE name LIKE '%timeout' AND source IN ('client', 'session')";
    assert_eq!(world.session(kept).await, 0);
}
