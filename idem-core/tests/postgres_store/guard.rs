//! Ways in which a handler can break its transaction, and how the commit detects them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{self, ThreadId};

use futures_util::FutureExt;
use idem_core::store::{CommitResult, StoreError, Transactions, TxnOutcome};
use sqlx::{AssertSqlSafe, Connection, Executor};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use crate::world::{DEADLINE, World, backend, effect, handler_connection, raw, world};

/// Asserts that the store's next transaction works, whatever happened before.
async fn the_store_goes_on(world: &mut World) {
    let before = (world.claims().await, world.effects().await);
    let mut txn = world.claimed("afterwards").await;
    let mut inner = handler_connection(&mut txn).begin().await.unwrap();
    effect(&world.schema, &mut inner).await;
    inner.commit().await.unwrap();
    assert_eq!((world.claims().await, world.effects().await), before, "a nested commit committed the claim");
    assert!(matches!(world.store.commit(txn).await, CommitResult::Done));
    assert_eq!((world.claims().await, world.effects().await), (before.0 + 1, before.1 + 1));
}

/// SQL behind which COMMIT fails with this code.
fn late(code: &str) -> String {
    format!(
        "CREATE FUNCTION pg_temp.fail() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'late' USING ERRCODE = '{code}'; END $$;
         CREATE TEMP TABLE late (n int);
         CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION pg_temp.fail();
         INSERT INTO late VALUES (1)"
    )
}

macro_rules! abuse {
    ($($name:ident: $sql:expr => $answer:pat, $claims:literal;)*) => {$(
        #[tokio::test]
        async fn $name() {
            let Some(mut world) = world().await else { return };
            let mut txn = world.claimed("abused").await;
            // Errors are ignored, as a careless handler does.
            let _ = handler_connection(&mut txn).execute(sqlx::raw_sql(AssertSqlSafe($sql))).await;
            let answer = world.store.commit(txn).await;
            assert!(matches!(answer, $answer), "{answer:?}");
            assert_eq!(world.claims().await, $claims);
            the_store_goes_on(&mut world).await;
        }
    )*};
}

abuse! {
    a_commit_and_a_new_transaction_are_found: "COMMIT; BEGIN; SELECT pg_current_xact_id()" => CommitResult::CommittedEarly(_), 1;
    a_commit_and_an_aborted_transaction_are_found: "COMMIT; BEGIN; SELECT 1/0" => CommitResult::CommittedEarly(_), 1;
    an_error_of_the_same_class_as_the_guards_is_the_handlers: "SELECT 'x'::int" => CommitResult::Swallowed, 0;
    a_commit_is_found_where_idems_own_statements_are_gone: "COMMIT; DEALLOCATE ALL" => CommitResult::CommittedEarly(_), 1;
    a_rollback_is_found_where_idems_own_statements_are_gone: "ROLLBACK; DEALLOCATE ALL" => CommitResult::RolledBack, 0;
    commit_and_chain_is_found: "COMMIT AND CHAIN" => CommitResult::CommittedEarly(_), 1;
    a_serialization_failure_at_the_commit_is_a_lost_race: late("40001") => CommitResult::Retry(_), 0;
    a_commit_that_ran_out_of_time_is_retried: late("57014") => CommitResult::Retry(_), 0;
    a_full_disk_at_the_commit_is_nobodys_fault: late("53100") => CommitResult::Unknown(_), 0;
    a_deferred_constraint_is_refused:
        "CREATE TEMP TABLE parent (id int PRIMARY KEY);
         CREATE TEMP TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
         INSERT INTO child VALUES (1)" => CommitResult::Refused(_), 0;
}

/// Each of them leaves an error behind, and the guard consumes only the first one.
#[tokio::test]
async fn two_dropped_nested_transactions_do_not_hide_that_the_handler_committed() {
    let Some(mut world) = world().await else { return };
    let mut txn = world.claimed("abused").await;
    let mut outer = handler_connection(&mut txn).begin().await.unwrap();
    let mut inner = outer.begin().await.unwrap();
    inner.execute(sqlx::raw_sql("COMMIT")).await.unwrap();
    drop(inner);
    drop(outer);
    let answer = world.store.commit(txn).await;
    assert!(matches!(answer, CommitResult::CommittedEarly(_)), "{answer:?}");
    the_store_goes_on(&mut world).await;
}

/// sqlx leaves the end of its reply unread, and the next query gets it: the connection is closed.
#[tokio::test]
async fn a_copy_that_failed_does_not_answer_for_the_commit() {
    let Some(mut world) = world().await else { return };
    for commits in [true, false] {
        let mut txn = world.claimed("copies").await;
        effect(&world.schema, handler_connection(&mut txn)).await;
        assert!(handler_connection(&mut txn).copy_out_raw("COPY there_is_no_such_table TO STDOUT").await.is_err());
        if commits {
            let answer = world.store.commit(txn).await;
            assert!(matches!(answer, CommitResult::Unknown(_)), "{answer:?}");
        } else {
            assert!(matches!(world.store.rollback(txn).await, Err(StoreError::ConnectionLost(_))));
        }
        assert_eq!((world.claims().await, world.effects().await), (0, 0));
    }
    the_store_goes_on(&mut world).await;
}

/// A COPY has finished, and its reply was not awaited. The claim tells how the transaction ended.
#[tokio::test]
async fn a_copy_that_nobody_waited_for_does_not_answer_for_the_commit() {
    let Some(mut world) = world().await else { return };
    for constraint in [true, false] {
        let mut txn = world.claimed("copies").await;
        if constraint {
            raw(
                &mut txn,
                "CREATE TEMP TABLE parent (id int PRIMARY KEY);
                 CREATE TEMP TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
                 INSERT INTO child VALUES (1)",
            )
            .await;
        }
        let text = format!("COPY {}.effects FROM STDIN", world.schema);
        let mut copy = handler_connection(&mut txn).copy_in_raw(&text).await.unwrap();
        copy.send(&b"effect\n"[..]).await.unwrap();
        assert!(copy.finish().now_or_never().is_none());
        let txn_handle = world.store.txn_handle(&txn).unwrap();
        let answer = world.store.commit(txn).await;
        assert!(matches!(answer, CommitResult::Unknown(_)), "{answer:?}");
        let txn_outcome = loop {
            match world.store.txn_outcome(&txn_handle).await.unwrap() {
                TxnOutcome::Running => tokio::task::yield_now().await,
                txn_outcome => break txn_outcome,
            }
        };
        let committed = i64::from(txn_outcome == TxnOutcome::CommittedEarly);
        assert!(txn_outcome == TxnOutcome::RolledBack || committed == 1 && !constraint, "{txn_outcome:?}");
        assert_eq!((world.claims().await, world.effects().await), (committed, committed));
    }
    the_store_goes_on(&mut world).await;
}

#[tokio::test]
async fn an_error_in_a_nested_transaction_is_rolled_back_with_it() {
    let Some(mut world) = world().await else { return };
    let mut txn = world.claimed("nested").await;
    let mut failed = handler_connection(&mut txn).begin().await.unwrap();
    failed.execute(sqlx::raw_sql("SELECT 1/0")).await.unwrap_err();
    failed.rollback().await.unwrap();
    effect(&world.schema, handler_connection(&mut txn)).await;
    assert!(matches!(world.store.commit(txn).await, CommitResult::Done));
    assert_eq!((world.claims().await, world.effects().await), (1, 1));
    the_store_goes_on(&mut world).await;
}

#[tokio::test]
async fn a_connection_killed_in_the_handler_is_lost_at_rollback_and_unknown_at_commit() {
    let Some(mut world) = world().await else { return };
    for commit in [true, false] {
        let mut txn = world.claimed("killed").await;
        let pid = backend(handler_connection(&mut txn)).await;
        let killed = sqlx::query("SELECT pg_terminate_backend($1)").bind(pid);
        killed.execute(&mut world.other).await.unwrap();
        crate::world::gone(&mut world.other, pid).await;
        if commit {
            let answer = world.store.commit(txn).await;
            assert!(matches!(answer, CommitResult::Unknown(StoreError::ConnectionLost(_))), "{answer:?}");
        } else {
            let answer = world.store.rollback(txn).await;
            assert!(matches!(answer, Err(StoreError::ConnectionLost(_))), "{answer:?}");
        }
    }
    assert_eq!(world.claims().await, 0);
    the_store_goes_on(&mut world).await;
}

#[tokio::test]
async fn a_transaction_of_our_own_that_was_aborted_does_not_pass_for_committed() {
    let Some(world) = world().await else { return };
    let mut txn = world.store.begin(DEADLINE).await.unwrap();
    let _ = handler_connection(&mut txn).execute(sqlx::raw_sql("SELECT 1/0")).await;
    let answer = world.store.commit(txn).await;
    assert!(matches!(answer, CommitResult::Swallowed), "{answer:?}");
    let txn = world.store.begin(DEADLINE).await.unwrap();
    assert!(matches!(world.store.commit(txn).await, CommitResult::Done));
}

/// Counts what the server reports beside its results, on one thread.
#[derive(Clone)]
struct Notices(Arc<AtomicUsize>, ThreadId);

impl<S: Subscriber> Layer<S> for Notices {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == "sqlx::postgres::notice" && thread::current().id() == self.1 {
            self.0.fetch_add(1, Relaxed);
        }
    }
}

#[tokio::test]
async fn a_failed_statement_is_rolled_back_without_a_warning_of_the_server() {
    let Some(mut world) = world().await else { return };
    let notices = Notices(Arc::default(), thread::current().id());
    // For all threads: with a subscriber of this thread alone, the first notice of a test beside this one, in a thread
    // without a subscriber, would decide that notices are not logged in this thread either.
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(notices.clone())).unwrap();
    let mut txn = world.claimed("failed").await;
    handler_connection(&mut txn).execute("SELECT 1/0").await.unwrap_err();
    assert_eq!(world.store.rollback(txn).await.unwrap(), TxnOutcome::RolledBack);
    assert_eq!(notices.0.load(Relaxed), 0);
    // The count works: without a transaction, ROLLBACK is a warning.
    world.other.execute("ROLLBACK").await.unwrap();
    assert_eq!(notices.0.load(Relaxed), 1);
}
