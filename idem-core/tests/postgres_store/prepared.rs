//! Transactions that a handler prepared for another session to commit: they keep their claim locked until they are ended.

use idem_core::store::postgres::Txn;
use idem_core::store::{CommitResult, Transactions, TxnOutcome};
use sqlx::{AssertSqlSafe, Executor};

use crate::world::{World, fresh, handler_connection, world};

/// What a handler does around its PREPARE, with the name of the transaction in place of `NAME`.
const ABUSES: [&str; 6] = [
    "PREPARE TRANSACTION NAME",
    "PREPARE TRANSACTION NAME; BEGIN",
    "PREPARE TRANSACTION NAME; BEGIN; SELECT pg_current_xact_id()",
    "PREPARE TRANSACTION NAME; BEGIN; SELECT 1/0",
    // Only its owner may roll it back, or a superuser.
    "PREPARE TRANSACTION NAME; SET ROLE pg_read_all_stats",
    "PREPARE TRANSACTION NAME; SET SESSION AUTHORIZATION pg_read_all_stats",
];

/// A world whose server lets transactions be prepared.
async fn prepares() -> Option<World> {
    let mut world = world().await?;
    if world.number("SELECT current_setting('max_prepared_transactions')::bigint").await == 0 {
        return None;
    }
    Some(world)
}

/// A transaction with a claim and an effect, which this has prepared.
async fn prepared(world: &World, key: &str, abuse: &str) -> Txn {
    let mut txn = world.claimed(key).await;
    crate::world::effect(&world.schema, handler_connection(&mut txn)).await;
    let name = format!("E'it''s \\\\ {}'", fresh("prepared"));
    let _ = handler_connection(&mut txn).execute(sqlx::raw_sql(AssertSqlSafe(abuse.replace("NAME", &name)))).await;
    txn
}

/// Nothing of the prepared transactions is left, and their key is free.
async fn is_gone(world: &mut World, key: &str, abuse: &str) {
    world.process(key).await;
    assert_eq!((world.effects().await, world.claims().await), (0, 1), "{abuse}");
    world.other.execute(sqlx::raw_sql("DELETE FROM processed_messages")).await.unwrap();
}

#[tokio::test]
async fn a_prepared_transaction_is_found_at_the_commit_and_rolled_back() {
    let Some(mut world) = prepares().await else { return };
    for abuse in ABUSES {
        let txn = prepared(&world, "a", abuse).await;
        let answer = world.store.commit(txn).await;
        assert!(matches!(answer, CommitResult::RolledBack), "{abuse}: {answer:?}");
        is_gone(&mut world, "a", abuse).await;
    }
}

#[tokio::test]
async fn a_prepared_transaction_is_found_at_the_rollback_and_rolled_back() {
    let Some(mut world) = prepares().await else { return };
    for abuse in ABUSES {
        let txn = prepared(&world, "a", abuse).await;
        assert_eq!(world.store.rollback(txn).await.unwrap(), TxnOutcome::Ended, "{abuse}");
        is_gone(&mut world, "a", abuse).await;
    }
}

#[tokio::test]
async fn a_prepared_transaction_whose_connection_is_lost_is_rolled_back() {
    let Some(mut world) = prepares().await else { return };
    for abuse in ABUSES {
        let txn = prepared(&world, "a", abuse).await;
        let txn_handle = world.store.txn_handle(&txn).unwrap();
        drop(txn);
        assert_eq!(world.store.txn_outcome(&txn_handle).await.unwrap(), TxnOutcome::Ended, "{abuse}");
        assert_eq!(world.store.txn_outcome(&txn_handle).await.unwrap(), TxnOutcome::RolledBack, "{abuse}");
        is_gone(&mut world, "a", abuse).await;
    }
}

/// The handler has a role that idem's own sessions do not have.
#[tokio::test]
async fn a_transaction_that_was_prepared_in_another_role_is_rolled_back() {
    let Some(mut world) = prepares().await else { return };
    let (user, role) = (fresh("idem_user"), fresh("idem_role"));
    let schema = &world.schema;
    let text = format!(
        "CREATE ROLE {role}; CREATE ROLE {user} LOGIN PASSWORD 'secret' IN ROLE {role};
         GRANT USAGE ON SCHEMA {schema} TO {user}; GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {user}"
    );
    world.other.execute(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
    let (_, rest) = world.url.rsplit_once('@').unwrap();
    let url = format!("postgres://{user}:secret@{rest}");
    let options = idem_core::Postgres::options(&url).schema(&world.schema).verify_only();
    world.store = options.connect().await.unwrap();
    let abuse = format!("SET ROLE {role}; PREPARE TRANSACTION NAME");
    let first = prepared(&world, "a", &format!("{abuse}; RESET ROLE")).await;
    assert!(matches!(world.store.commit(first).await, CommitResult::RolledBack));
    let second = prepared(&world, "a", &abuse).await;
    let txn_handle = world.store.txn_handle(&second).unwrap();
    drop(second);
    assert_eq!(world.store.txn_outcome(&txn_handle).await.unwrap(), TxnOutcome::Ended);
    is_gone(&mut world, "a", &abuse).await;
    world.store = idem_core::Postgres::options(&world.url).schema(&world.schema).connect().await.unwrap();
    let text = format!("DROP OWNED BY {user}; DROP ROLE {user}; DROP ROLE {role}");
    world.other.execute(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
}
