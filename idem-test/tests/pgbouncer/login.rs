//! Settings that are made in a session after its login, by a pooler that lends it for as long as a client is connected.
//! `RESET ALL`, which ends each message, does not return to them.

use std::time::Duration;

use idem_core::store::{CommitResult, Transactions, TxnState};
use idem_test::conformance::store::Setup;
use sqlx::Executor as _;

use crate::role::lend;
use crate::world::PgBouncerWorld;

const TIMEOUT: Duration = Duration::from_secs(20);

/// They are no settings of a handler that the end of a message has to undo.
#[tokio::test]
async fn the_limits_of_a_pooler_in_session_mode_hold_for_each_message() {
    let limits = "SET lock_timeout = 7000; SET statement_timeout = 9000";
    let Some(world) = PgBouncerWorld::of_sessions(limits).await else { return };
    let store = world.undeclared(Setup::default()).connect().await.unwrap();
    for round in 0..3 {
        let mut txn = store.begin(TIMEOUT).await.unwrap();
        let shown: String =
            sqlx::query_scalar("SELECT current_setting('statement_timeout')").fetch_one(lend(&mut txn)).await.unwrap();
        assert_eq!(shown, "9s", "round {round}");
        store.rollback(txn).await.unwrap();
    }
}

/// Otherwise what handlers after a ROLLBACK write in a batch would be committed at once, and again when their messages run
/// again.
#[tokio::test]
async fn a_batch_is_checked_where_its_session_was_read_only_at_the_login_only() {
    let Some(world) = PgBouncerWorld::of_sessions("SET default_transaction_read_only = on").await else { return };
    let mut setup = Setup::default();
    setup.connections = Some(2);
    let store = world.undeclared(setup).connect().await.unwrap();
    let mut first = store.begin_guarded(TIMEOUT).await.unwrap();
    lend(&mut first).execute("SELECT 1").await.unwrap();
    assert!(matches!(store.commit(first).await, CommitResult::Done));
    let mut batch = store.begin_guarded(TIMEOUT).await.unwrap();
    lend(&mut batch).execute("ROLLBACK").await.unwrap();
    assert!(matches!(store.check_between(&mut batch).await, Ok(TxnState::Ended)));
    store.rollback(batch).await.unwrap();
}
