//! The suites for stores and the pipeline, over PostgreSQL behind a pgbouncer in transaction mode.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::Duration;

use idem_conformance::captured;
use idem_conformance::store::{Setup, World};
use idem_core::store::{CommitResult, Consumers, Identity, Transactions};
use idem_core::{Fingerprint, Key, Outgoing, Postgres, Relay};
use sqlx::{ConnectOptions as _, Connection as _};
use tracing::instrument::WithSubscriber;

use world::PgBouncerWorld;

#[path = "worlds/careless.rs"]
mod careless;
#[path = "../../../idem-conformance/tests/worlds/postgres.rs"]
mod direct;
#[path = "worlds/pgbouncer.rs"]
mod world;

#[path = "pgbouncer/ended.rs"]
mod ended;
#[path = "pgbouncer/login.rs"]
mod login;
#[path = "pgbouncer/settings.rs"]
mod settings;
#[path = "pgbouncer/tenants.rs"]
mod tenants;

mod store {
    idem_conformance::store_suite!(super::world::PgBouncerWorld);
}

mod pipeline {
    idem_pipeline::pipeline_suite!(super::world::PgBouncerWorld);
}

#[tokio::test]
async fn a_pooler_that_was_not_declared_is_refused_with_the_remedy() {
    let Some(world) = <PgBouncerWorld>::make().await else { return };
    let refused = Postgres::connect(world.url()).await.unwrap_err().to_string();
    assert!(refused.contains(".pgbouncer()") && !refused.contains("secret"), "{refused}");
}

/// Without the option, a statement that a session has prepared is missing in another one, or there already.
#[tokio::test]
async fn a_pooler_that_ignores_the_settings_of_a_login_is_refused_with_the_remedy() {
    let Some(world) = PgBouncerWorld::<true>::undetected().await else { return };
    let refused = world.undeclared(Setup::default()).connect().await.unwrap_err().to_string();
    assert!(refused.contains(".pgbouncer()"), "{refused}");
    world.undeclared(Setup::default()).pgbouncer().connect().await.unwrap();
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
    mod read_only {
        idem_pipeline::__suite! { idem_pipeline::Mode::<crate::world::PgBouncerWorld>::in_batches();
            a_rollback_in_a_batch_harms_no_other_message
            a_rollback_and_begin_in_a_batch_harms_no_other_message
            no_attempt_is_recorded_for_an_error_that_was_swallowed_before
            a_commit_harms_no_other_message
            a_commit_that_is_not_looked_at_harms_no_other_message
            a_write_behind_a_commit_never_exists
            a_commit_that_is_cut_off_harms_no_other_message
            a_transaction_that_its_handler_prepared_is_rolled_back
            // outbox
            messages_that_a_handler_stages_are_written_with_its_effect
            nothing_is_staged_by_a_run_that_fails
            each_of_many_messages_stages_once
            a_batch_handler_stages_with_its_batch
            // local messages
            a_local_message_runs_exactly_once
            nothing_is_handed_over_by_a_run_that_fails
            each_of_many_messages_hands_over_once
            a_batch_handler_hands_over_with_its_batch
        }
    }

    /// The sessions may write outside of idem's transactions, so a handler's own writes after its ROLLBACK remain.
    mod writable {
        idem_pipeline::__suite! { idem_pipeline::Mode::<crate::world::PgBouncerWorld<true>>::in_batches();
            a_rollback_in_a_batch_harms_no_other_message
            a_rollback_and_begin_in_a_batch_harms_no_other_message
            no_attempt_is_recorded_for_an_error_that_was_swallowed_before
            a_write_behind_a_rollback_runs_at_most_twice
            a_write_behind_a_rollback_at_the_end_runs_at_most_twice
            a_write_and_an_error_behind_a_rollback_run_at_most_twice
            a_commit_harms_no_other_message
            a_commit_that_is_not_looked_at_harms_no_other_message
            a_write_behind_a_commit_harms_no_other_message
            a_commit_that_is_cut_off_harms_no_other_message
            a_transaction_that_its_handler_prepared_is_rolled_back
            // outbox
            messages_that_a_handler_stages_are_written_with_its_effect
            nothing_is_staged_by_a_run_that_fails
            each_of_many_messages_stages_once
            // local messages
            nothing_is_handed_over_by_a_run_that_fails
            each_of_many_messages_hands_over_once
        }
    }

    /// The same sessions, for messages that were stored first.
    mod stored {
        idem_pipeline::__suite! { idem_pipeline::Mode::<crate::world::PgBouncerWorld<true>>::in_inbox_batches();
            a_rollback_in_a_batch_harms_no_other_message
            a_rollback_and_begin_in_a_batch_harms_no_other_message
            a_write_behind_a_rollback_runs_at_most_twice
            a_write_and_an_error_behind_a_rollback_run_at_most_twice
        }
    }
}

/// The writable world: the sessions of a pooler may write outside of idem's transactions, so what is staged behind the
/// end of a transaction could be committed at once.
mod writable {
    use idem_conformance::store::World;

    use crate::world::PgBouncerWorld;

    idem_conformance::__suite! { PgBouncerWorld::<true>::make(), store:
        staged_messages_are_committed_with_the_claim_and_in_order
        nothing_staged_survives_a_transaction_that_its_handler_ended
        local_messages_are_stored_as_deliveries_are
        nothing_local_survives_a_transaction_that_its_handler_ended
    }
}

/// The application's connection goes through the pooler, too. Another client uses the session between its transactions.
#[tokio::test]
async fn a_transaction_of_the_application_claims_and_stages_behind_the_pooler() {
    let Some(world) = PgBouncerWorld::<true>::make().await else { return };
    let store = world.store(Setup::default()).await.unwrap();
    let outbox = store.outbox("billing");
    // A pooler refuses this parameter.
    let target: sqlx::postgres::PgConnectOptions = world.url().parse().unwrap();
    let mut app = target.extra_float_digits(None).connect().await.unwrap();
    for (text, ends) in [("one", true), ("two", false), ("two", true), ("two", true)] {
        let mut tx = app.begin().await.unwrap();
        let claim = store.claim_key(&mut tx, "importer", "row", Key::of(text).unwrap(), Fingerprint::none());
        if claim.await.unwrap().is_new() {
            let messages =
                ["small", &"large".repeat(20_000)].map(|size| Outgoing::new(text, size.to_owned()).key(text));
            outbox.stage(&mut tx, messages).await.unwrap();
        }
        if ends {
            tx.commit().await.unwrap()
        } else {
            tx.rollback().await.unwrap()
        }
        assert_eq!(world.session("SELECT count(*) FROM pg_prepared_statements").await, 0, "prepared statements");
    }
    let sink = idem_test::MemorySink::new();
    let relay = tokio::spawn(Relay::new("billing", store, sink.clone()).run_until(std::future::pending()));
    outbox.wake();
    tokio::time::timeout(Duration::from_secs(30), sink.wait_for(|sink| sink.published().len() == 4)).await.unwrap();
    relay.abort();
    let mut published: Vec<(String, usize)> =
        sink.published().iter().map(|message| (message.to().to_owned(), message.payload().len())).collect();
    published.sort();
    let expected = [("one", 5), ("one", 100_000), ("two", 5), ("two", 100_000)];
    assert_eq!(published, expected.map(|(to, size)| (to.to_owned(), size)));
}

#[tokio::test]
async fn a_role_whose_sessions_are_read_only_writes_nothing_behind_its_transaction() {
    let Some(world) = PgBouncerWorld::with_read_only_role().await else { return };
    let store = world.store(Setup::default()).await.unwrap();
    let handler = store.register("billing", &["paid"]).await.unwrap()[0];
    store.ping().await.unwrap();
    let identity = Identity { handler, key: Key::of("a").unwrap(), fingerprint: Fingerprint::none() };
    let handler_timeout = Duration::from_secs(5);
    let (mut txn, _) = store.begin_first(handler_timeout, Some(&identity)).await.unwrap();
    let tx = <Postgres as idem_core::HasConnection<sqlx::PgConnection>>::connection(&mut txn);
    <PgBouncerWorld>::execute(tx, "ROLLBACK").await.unwrap();
    let sql = format!("CREATE TABLE {} (name text)", world.name("effects"));
    let refused = <PgBouncerWorld>::execute(tx, &sql).await.unwrap_err().to_string();
    assert!(refused.contains("read-only"), "{refused}");
    assert!(matches!(store.commit(txn).await, CommitResult::RolledBack));
    let (txn, _) = store.begin_first(handler_timeout, Some(&identity)).await.unwrap();
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
    let (txn, _) = store.begin_first(handler_timeout, Some(&identity)).await.unwrap();
    assert!(matches!(store.commit(txn).await, CommitResult::Done));
    store.prune().await.unwrap();
    let kept =
        world.session("SELECT count(*) FROM pg_settings WHERE source = 'session' AND name LIKE '%timeout%'").await;
    assert_eq!(kept, 0, "settings");
    assert_eq!(world.session("SELECT count(*) FROM pg_prepared_statements").await, 0, "prepared statements");
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()";
    assert_eq!(world.session(locks).await, 0, "locks");
}
