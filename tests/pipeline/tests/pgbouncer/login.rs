//! Settings that are made in a session after its login, by a pooler that lends it for as long as a client is connected.
//! `RESET ALL`, which ends each message, does not return to them.

use std::time::Duration;

use idem_conformance::store::Setup;
use idem_core::Postgres;
use idem_core::store::{CommitResult, Transactions, TxnState};
use sqlx::Executor as _;

use crate::settings::{Txn, lend};
use crate::world::PgBouncerWorld;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A store that has one connection for handlers, through such a pooler.
async fn behind(connect_query: &str) -> Option<(PgBouncerWorld<true>, Postgres)> {
    // As if the pooler had passed on the settings of the login.
    let world = PgBouncerWorld::of_sessions(&format!("SET idem.started = on; {connect_query}")).await?;
    let setup = Setup { connections: Some(2), ..Setup::default() };
    let store = world.undeclared(setup).connect().await.unwrap();
    Some((world, store))
}

async fn shown(txn: &mut Txn, setting: &str) -> String {
    let asked = sqlx::query_scalar("SELECT current_setting($1)").bind(setting);
    asked.fetch_one(lend(txn)).await.unwrap()
}

/// They are no settings of a handler that the end of a message has to undo.
#[tokio::test]
async fn the_limits_of_a_pooler_in_session_mode_hold_for_each_message() {
    let Some((_world, store)) = behind("SET lock_timeout = 7000; SET statement_timeout = 9000").await else { return };
    for round in 0..3 {
        let mut txn = store.begin(TIMEOUT).await.unwrap();
        assert_eq!(shown(&mut txn, "statement_timeout").await, "9s", "round {round}");
        store.rollback(txn).await.unwrap();
    }
}

#[tokio::test]
async fn a_natural_handler_keeps_a_lock_timeout_that_a_reset_takes_from_its_session() {
    let Some((_world, store)) = behind("SET lock_timeout = 7000").await else { return };
    for round in 0..3 {
        let mut natural = store.begin_first(TIMEOUT, None).await.unwrap().0;
        assert_eq!(shown(&mut natural, "lock_timeout").await, "7s", "message {round}");
        assert!(matches!(store.commit(natural).await, CommitResult::Done));
    }
}

/// Otherwise what handlers after a ROLLBACK write in a batch would be committed at once, and again when their messages run
/// again.
#[tokio::test]
async fn a_batch_is_checked_where_its_session_was_read_only_at_the_login_only() {
    let Some((_world, store)) = behind("SET default_transaction_read_only = on").await else { return };
    let mut first = store.begin_first(TIMEOUT, None).await.unwrap().0;
    lend(&mut first).execute("SELECT 1").await.unwrap();
    assert!(matches!(store.commit(first).await, CommitResult::Done));
    let mut batch = store.begin_first(TIMEOUT, None).await.unwrap().0;
    lend(&mut batch).execute("ROLLBACK").await.unwrap();
    assert!(matches!(store.check_between(&mut batch).await, Ok(TxnState::Ended)));
    store.rollback(batch).await.unwrap();
}
