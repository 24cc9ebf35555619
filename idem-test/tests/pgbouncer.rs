//! The suites for stores and the pipeline, over PostgreSQL behind a pgbouncer in transaction mode.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::Duration;

use idem_core::store::{ClaimState, Claims, CommitResult, Identity, Operator, Transactions};
use idem_core::{Fingerprint, Key, Postgres};
use idem_test::captured;
use idem_test::conformance::store::{Setup, World};
use tracing::instrument::WithSubscriber;

use world::PgBouncerWorld;

#[path = "worlds/postgres.rs"]
mod direct;
#[path = "worlds/pgbouncer.rs"]
mod world;

#[path = "pgbouncer/role.rs"]
mod role;

mod store {
    idem_test::store_suite!(super::world::PgBouncerWorld);
}

mod pipeline {
    idem_test::pipeline_suite!(super::world::PgBouncerWorld);
}

#[tokio::test]
async fn a_pooler_that_was_not_declared_is_refused_with_the_cure() {
    let Some(world) = <PgBouncerWorld>::make().await else { return };
    let refused = Postgres::connect(world.url()).await.unwrap_err().to_string();
    assert!(refused.contains(".pgbouncer()") && !refused.contains("secret"), "{refused}");
}

#[tokio::test]
async fn sessions_that_may_write_are_a_warning_that_begins_with_the_finding() {
    let Some(world) = PgBouncerWorld::<true>::make().await else { return };
    let (text, subscriber) = captured();
    world.store(Setup::default()).with_subscriber(subscriber).await.unwrap();
    let text = text.to_string();
    let warning = text.lines().find(|line| line.contains("read-only")).unwrap_or(&text);
    let parts = ["WARN", "sessions of this role are not read-only", "run ALTER ROLE .. SET", "Otherwise a handler"];
    let places = parts.map(|part| warning.find(part));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} in {warning}");
}

#[tokio::test]
async fn sessions_that_are_read_only_are_no_warning() {
    let Some(world) = <PgBouncerWorld>::make().await else { return };
    let (text, subscriber) = captured();
    world.store(Setup::default()).with_subscriber(subscriber).await.unwrap();
    assert!(!text.to_string().contains("read-only"), "{text}");
}

mod batch {
    use idem_test::conformance::pipeline::{self, InBatches, World};

    macro_rules! cases {
        ($world:ty: $($name:ident)*) => {$(
            #[tokio::test]
            async fn $name() {
                if let Some(world) = InBatches::<$world>::make().await {
                    pipeline::$name(world).await;
                }
            }
        )*};
    }

    mod read_only {
        use super::{InBatches, World, pipeline};
        use crate::world::PgBouncerWorld;

        cases! {
            PgBouncerWorld:
            a_commit_harms_no_other_message
            a_commit_that_is_not_looked_at_harms_no_other_message
            a_write_behind_a_commit_never_exists
            a_commit_that_is_cut_off_harms_no_other_message
            a_transaction_that_its_handler_prepared_is_rolled_back
        }
    }

    /// The sessions may write outside of idem's transactions, so a batch checks after each handler. A handler's own
    /// writes after its ROLLBACK remain.
    mod writable {
        use super::{InBatches, World, pipeline};
        use crate::world::PgBouncerWorld;

        cases! {
            PgBouncerWorld<true>:
            a_rollback_in_a_batch_harms_no_other_message
            a_rollback_and_begin_in_a_batch_harms_no_other_message
            nobody_is_charged_for_an_error_that_was_swallowed_before
            a_write_behind_a_rollback_runs_at_most_twice
            a_write_behind_a_rollback_at_the_end_runs_at_most_twice
            a_write_and_an_error_behind_a_rollback_run_at_most_twice
            a_commit_harms_no_other_message
            a_commit_that_is_not_looked_at_harms_no_other_message
            a_write_behind_a_commit_harms_no_other_message
            a_commit_that_is_cut_off_harms_no_other_message
            a_transaction_that_its_handler_prepared_is_rolled_back
        }
    }
}

#[tokio::test]
async fn a_role_whose_sessions_are_read_only_writes_nothing_behind_its_transaction() {
    let Some(world) = PgBouncerWorld::with_read_only_role().await else { return };
    let store = world.store(Setup::default()).await.unwrap();
    let handler = store.register("billing", &["paid"]).await.unwrap()[0];
    store.ping().await.unwrap();
    let identity = Identity { handler, key: Key::of("a").unwrap(), fingerprint: Fingerprint::none() };
    let handler_timeout = Duration::from_secs(5);
    let (mut txn, _) = store.begin_with_claim(handler_timeout, &identity, ClaimState::Processed).await.unwrap();
    let tx = <Postgres as idem_core::HasConnection<sqlx::PgConnection>>::connection(&mut txn);
    <PgBouncerWorld>::execute(tx, "ROLLBACK").await.unwrap();
    let sql = format!("CREATE TABLE {} (name text)", world.name("effects"));
    let refused = <PgBouncerWorld>::execute(tx, &sql).await.unwrap_err().to_string();
    assert!(refused.contains("read-only"), "{refused}");
    assert!(matches!(store.commit(txn).await, CommitResult::RolledBack));
    let (txn, _) = store.begin_with_claim(handler_timeout, &identity, ClaimState::Processed).await.unwrap();
    assert!(matches!(store.commit(txn).await, CommitResult::Done));
    store.prune().await.unwrap();
    world.drop_role().await;
}

#[tokio::test]
async fn sessions_of_the_pooler_keep_no_setting_and_no_lock() {
    let Some(world) = <PgBouncerWorld>::make().await else { return };
    let store = world.store(Setup::default()).await.unwrap();
    let handler = store.register("billing", &["paid"]).await.unwrap()[0];
    let identity = Identity { handler, key: Key::of("a").unwrap(), fingerprint: Fingerprint::none() };
    let handler_timeout = Duration::from_secs(5);
    let (txn, _) = store.begin_with_claim(handler_timeout, &identity, ClaimState::Processed).await.unwrap();
    assert!(matches!(store.commit(txn).await, CommitResult::Done));
    store.prune().await.unwrap();
    let kept =
        world.session("SELECT count(*) FROM pg_settings WHERE source = 'session' AND name LIKE '%timeout%'").await;
    assert_eq!(kept, 0, "settings");
    assert_eq!(world.session("SELECT count(*) FROM pg_prepared_statements").await, 0, "prepared statements");
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()";
    assert_eq!(world.session(locks).await, 0, "locks");
}
