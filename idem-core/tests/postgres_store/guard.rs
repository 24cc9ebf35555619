//! Ways in which a handler can break its transaction, and how the commit detects them.

use futures_util::FutureExt;
use idem_core::store::{ClaimState, Claims, CommitResult, InboxRows, RollbackResult, StoreError, Transactions};
use sqlx::{AssertSqlSafe, Connection, Executor};

use crate::world::{DEADLINE, World, backend, effect, lend, raw, world};

/// Asserts that the store's next transaction works, whatever happened before.
async fn the_store_goes_on(world: &mut World) {
    let before = (world.claims().await, world.effects().await);
    let mut txn = world.claimed("afterwards").await;
    let mut inner = lend(&mut txn).begin().await.unwrap();
    effect(&world.schema, &mut inner).await;
    inner.commit().await.unwrap();
    assert_eq!((world.claims().await, world.effects().await), before, "a nested commit committed the claim");
    assert!(matches!(world.store.commit(txn).await, CommitResult::Done));
    assert_eq!((world.claims().await, world.effects().await), (before.0 + 1, before.1 + 1));
}

macro_rules! abuse {
    ($($name:ident: $sql:expr => $answer:pat, $claims:literal;)*) => {$(
        #[tokio::test]
        async fn $name() {
            let Some(mut world) = world().await else { return };
            let mut txn = world.claimed("abused").await;
            // Errors are ignored, as a careless handler does.
            let _ = lend(&mut txn).execute(sqlx::raw_sql($sql)).await;
            let answer = world.store.commit(txn).await;
            assert!(matches!(answer, $answer), "{answer:?}");
            assert_eq!(world.claims().await, $claims);
            the_store_goes_on(&mut world).await;
            world.end().await;
        }
    )*};
}

abuse! {
    a_swallowed_error_is_found: "SELECT 1/0" => CommitResult::Swallowed, 0;
    a_rollback_is_found: "ROLLBACK" => CommitResult::RolledBack, 0;
    a_rollback_and_a_new_transaction_are_found: "ROLLBACK; BEGIN; SELECT pg_current_xact_id()" => CommitResult::RolledBack, 0;
    a_commit_is_found: "COMMIT" => CommitResult::CommittedEarly, 1;
    a_commit_and_a_new_transaction_are_found: "COMMIT; BEGIN; SELECT pg_current_xact_id()" => CommitResult::CommittedEarly, 1;
    a_commit_and_an_aborted_transaction_are_found: "COMMIT; BEGIN; SELECT 1/0" => CommitResult::CommittedEarly, 1;
    an_error_of_the_same_class_as_the_guards_is_the_handlers: "SELECT 'x'::int" => CommitResult::Swallowed, 0;
    a_commit_is_found_where_idems_own_statements_are_gone: "COMMIT; DEALLOCATE ALL" => CommitResult::CommittedEarly, 1;
    a_rollback_is_found_where_idems_own_statements_are_gone: "ROLLBACK; DEALLOCATE ALL" => CommitResult::RolledBack, 0;
    commit_and_chain_is_found: "COMMIT AND CHAIN" => CommitResult::CommittedEarly, 1;
    a_serialization_failure_at_the_commit_is_a_lost_race:
        "CREATE FUNCTION pg_temp.lose() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '40001'; END $$;
         CREATE TEMP TABLE late (n int);
         CREATE CONSTRAINT TRIGGER lose AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION pg_temp.lose();
         INSERT INTO late VALUES (1)" => CommitResult::Retry(_), 0;
    a_commit_that_ran_out_of_time_is_tried_anew:
        "CREATE FUNCTION pg_temp.slow() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'canceling statement' USING ERRCODE = '57014'; END $$;
         CREATE TEMP TABLE late (n int);
         CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION pg_temp.slow();
         INSERT INTO late VALUES (1)" => CommitResult::Retry(_), 0;
    a_full_disk_at_the_commit_is_nobodys_fault:
        "CREATE FUNCTION pg_temp.fill() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'full' USING ERRCODE = '53100'; END $$;
         CREATE TEMP TABLE late (n int);
         CREATE CONSTRAINT TRIGGER fill AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION pg_temp.fill();
         INSERT INTO late VALUES (1)" => CommitResult::Unknown(_), 0;
    a_deferred_constraint_is_refused:
        "CREATE TEMP TABLE parent (id int PRIMARY KEY);
         CREATE TEMP TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
         INSERT INTO child VALUES (1)" => CommitResult::Refused(_), 0;
}

/// Begins and makes three claims at once, as a batch does.
async fn batch(world: &World, name: &str) -> idem_core::store::postgres::Txn {
    let ids: Vec<_> = (0..3).map(|n| world.identity(&format!("{name} {n}"))).collect();
    let mut txn = world.store.begin(DEADLINE).await.unwrap();
    world.store.claim_many(&mut txn, &ids.iter().collect::<Vec<_>>(), ClaimState::Processed).await.unwrap();
    txn
}

#[tokio::test]
async fn a_batch_is_committed_by_nobody_but_idem() {
    let Some(mut world) = world().await else { return };
    let claims = format!("{}.processed_messages", world.schema);
    let disabled = format!("ALTER TABLE {claims} DISABLE TRIGGER ALL; COMMIT");
    let ends: [&[&str]; 16] = [
        &["COMMIT"],
        &["END"],
        &["COMMIT AND CHAIN"],
        &["PREPARE TRANSACTION 'idem'"],
        &[&disabled],
        &["SET CONSTRAINTS ALL IMMEDIATE", "COMMIT"],
        &["SET CONSTRAINTS ALL IMMEDIATE", "SET CONSTRAINTS ALL IMMEDIATE", "COMMIT"],
        &["SET CONSTRAINTS ALL IMMEDIATE; COMMIT"],
        &["SET CONSTRAINTS ALL IMMEDIATE", "SET CONSTRAINTS ALL DEFERRED", "COMMIT"],
        &["SAVEPOINT a", "SET CONSTRAINTS ALL IMMEDIATE", "ROLLBACK TO a", "COMMIT"],
        &["SAVEPOINT a", "SET CONSTRAINTS ALL IMMEDIATE", "RELEASE a", "COMMIT"],
        &["SET LOCAL search_path = nowhere", "COMMIT"],
        &["SET LOCAL TimeZone = 'Asia/Tokyo'", "SET CONSTRAINTS ALL IMMEDIATE", "SET LOCAL TimeZone = 'UTC'", "COMMIT"],
        &["SET ROLE pg_monitor", "COMMIT"],
        &["SET TRANSACTION READ ONLY", "COMMIT"],
        &["RESET ALL; COMMIT"],
    ];
    for statements in ends {
        let mut txn = batch(&world, "ended").await;
        let (last, before) = statements.split_last().unwrap();
        for statement in before {
            lend(&mut txn).execute(sqlx::raw_sql(AssertSqlSafe(*statement))).await.unwrap();
        }
        let refused = lend(&mut txn).execute(sqlx::raw_sql(AssertSqlSafe(*last))).await.unwrap_err().to_string();
        let named = [
            "let idem commit",
            "prepared transactions are disabled",
            "pending trigger events",
            "permission denied",
            "read-only",
        ];
        assert!(named.iter().any(|text| refused.contains(text)), "{statements:?}: {refused}");
        let undone = world.store.rollback(txn).await.unwrap();
        assert_ne!(undone, idem_core::store::RollbackResult::CommittedEarly, "{statements:?}");
        assert_eq!(world.claims().await, 0, "{statements:?}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_handler_in_a_batch_looks_at_its_constraints_and_idem_commits() {
    let Some(mut world) = world().await else { return };
    let looks: [&[&str]; 6] = [
        &["SET CONSTRAINTS ALL IMMEDIATE"],
        &["SET CONSTRAINTS ALL IMMEDIATE", "SELECT 1", "SET CONSTRAINTS ALL IMMEDIATE"],
        &["SAVEPOINT a", "SET CONSTRAINTS ALL IMMEDIATE", "ROLLBACK TO a"],
        &["SAVEPOINT a", "SET CONSTRAINTS ALL IMMEDIATE", "RELEASE a"],
        &["SET LOCAL search_path = nowhere", "SET CONSTRAINTS ALL IMMEDIATE"],
        &["SET LOCAL ROLE pg_monitor"],
    ];
    for (n, statements) in looks.into_iter().enumerate() {
        let mut txn = batch(&world, &n.to_string()).await;
        for statement in statements {
            lend(&mut txn).execute(sqlx::raw_sql(AssertSqlSafe(*statement))).await.unwrap();
        }
        let answer = world.store.commit(txn).await;
        assert!(matches!(answer, CommitResult::Done), "{statements:?}: {answer:?}");
        assert_eq!(world.claims().await, 3 * (n as i64 + 1));
    }
    world.end().await;
}

#[tokio::test]
async fn a_dropped_nested_transaction_does_not_hide_that_the_handler_committed() {
    let Some(mut world) = world().await else { return };
    let mut txn = world.claimed("abused").await;
    let mut inner = lend(&mut txn).begin().await.unwrap();
    inner.execute(sqlx::raw_sql("COMMIT")).await.unwrap();
    drop(inner);
    let answer = world.store.commit(txn).await;
    assert!(matches!(answer, CommitResult::CommittedEarly), "{answer:?}");
    the_store_goes_on(&mut world).await;
    world.end().await;
}

/// Each of them leaves an error behind, and the guard consumes only the first one.
#[tokio::test]
async fn two_dropped_nested_transactions_do_not_hide_that_the_handler_committed() {
    let Some(mut world) = world().await else { return };
    let mut txn = world.claimed("abused").await;
    let mut outer = lend(&mut txn).begin().await.unwrap();
    let mut inner = outer.begin().await.unwrap();
    inner.execute(sqlx::raw_sql("COMMIT")).await.unwrap();
    drop(inner);
    drop(outer);
    let answer = world.store.commit(txn).await;
    assert!(matches!(answer, CommitResult::CommittedEarly), "{answer:?}");
    the_store_goes_on(&mut world).await;
    world.end().await;
}

/// sqlx leaves the end of its reply unread, and the next query gets it.
#[tokio::test]
async fn a_copy_that_failed_does_not_answer_for_the_commit() {
    let Some(mut world) = world().await else { return };
    for commits in [true, false] {
        let mut txn = world.claimed("copies").await;
        effect(&world.schema, lend(&mut txn)).await;
        assert!(lend(&mut txn).copy_out_raw("COPY there_is_no_such_table TO STDOUT").await.is_err());
        if commits {
            let answer = world.store.commit(txn).await;
            assert!(matches!(answer, CommitResult::Swallowed), "{answer:?}");
        } else {
            assert_eq!(world.store.rollback(txn).await.unwrap(), RollbackResult::RolledBack);
        }
        assert_eq!((world.claims().await, world.effects().await), (0, 0));
    }
    the_store_goes_on(&mut world).await;
    world.end().await;
}

/// A COPY has finished, and its reply was not awaited.
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
        let mut copy = lend(&mut txn).copy_in_raw(&text).await.unwrap();
        copy.send(&b"effect\n"[..]).await.unwrap();
        assert!(copy.finish().now_or_never().is_none());
        let answer = world.store.commit(txn).await;
        if constraint {
            assert!(matches!(answer, CommitResult::Refused(_)), "{answer:?}");
            assert_eq!((world.claims().await, world.effects().await), (0, 0));
        } else {
            assert!(matches!(answer, CommitResult::Done), "{answer:?}");
            assert_eq!((world.claims().await, world.effects().await), (1, 1));
        }
    }
    the_store_goes_on(&mut world).await;
    world.end().await;
}

#[tokio::test]
async fn nested_transactions_commit_roll_back_and_drop_inside_the_claims() {
    let Some(mut world) = world().await else { return };
    let mut txn = world.claimed("nested").await;
    let mut kept = lend(&mut txn).begin().await.unwrap();
    effect(&world.schema, &mut kept).await;
    kept.commit().await.unwrap();
    let mut undone = lend(&mut txn).begin().await.unwrap();
    effect(&world.schema, &mut undone).await;
    undone.rollback().await.unwrap();
    let mut dropped = lend(&mut txn).begin().await.unwrap();
    effect(&world.schema, &mut dropped).await;
    drop(dropped);
    let mut failed = lend(&mut txn).begin().await.unwrap();
    failed.execute(sqlx::raw_sql("SELECT 1/0")).await.unwrap_err();
    failed.rollback().await.unwrap();
    assert_eq!((world.claims().await, world.effects().await), (0, 0));
    assert!(matches!(world.store.commit(txn).await, CommitResult::Done));
    assert_eq!((world.claims().await, world.effects().await), (1, 1));
    the_store_goes_on(&mut world).await;
    world.end().await;
}

#[tokio::test]
async fn a_nested_transaction_left_open_is_rolled_back_with_the_claim() {
    let Some(mut world) = world().await else { return };
    let mut txn = world.claimed("left").await;
    let mut inner = lend(&mut txn).begin().await.unwrap();
    effect(&world.schema, &mut inner).await;
    drop(inner);
    world.store.rollback(txn).await.unwrap();
    assert_eq!((world.claims().await, world.effects().await), (0, 0));
    the_store_goes_on(&mut world).await;
    world.end().await;
}

#[tokio::test]
async fn a_connection_killed_in_the_handler_is_lost_at_rollback_and_unknown_at_commit() {
    let Some(mut world) = world().await else { return };
    for commit in [true, false] {
        let mut txn = world.claimed("killed").await;
        let pid = backend(lend(&mut txn)).await;
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
    world.end().await;
}

#[tokio::test]
async fn a_transaction_of_our_own_that_was_aborted_does_not_pass_for_committed() {
    let Some(world) = world().await else { return };
    let mut txn = world.store.begin(DEADLINE).await.unwrap();
    let _ = lend(&mut txn).execute(sqlx::raw_sql("SELECT 1/0")).await;
    let answer = world.store.commit(txn).await;
    assert!(matches!(answer, CommitResult::Swallowed), "{answer:?}");
    let txn = world.store.begin(DEADLINE).await.unwrap();
    assert!(matches!(world.store.commit(txn).await, CommitResult::Done));
    world.end().await;
}

#[tokio::test]
async fn a_started_row_is_guarded_as_a_claim_is() {
    let Some(mut world) = world().await else { return };
    world.schedule("row", Ok(std::time::Duration::ZERO)).await;
    let row = world.take(idem_core::store::Kind::Ordinary, 1).await.remove(0);
    let mut txn = world.store.begin(DEADLINE).await.unwrap();
    assert!(world.store.start(&mut txn, &row).await.unwrap());
    raw(&mut txn, "ROLLBACK").await;
    let answer = world.store.commit(txn).await;
    assert!(matches!(answer, CommitResult::RolledBack), "{answer:?}");
    assert_eq!(world.number("SELECT count(*) FROM inbox_messages").await, 1);
    world.end().await;
}

#[tokio::test]
async fn a_handlers_lost_race_is_known_through_wrappers() {
    let Some(world) = world().await else { return };
    let mut txn = world.claimed("race").await;
    let error = lend(&mut txn)
        .execute(sqlx::raw_sql("DO $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '40P01'; END $$"))
        .await
        .unwrap_err();
    assert!(world.store.lost_race(&std::io::Error::other(error)));
    assert!(!world.store.lost_race(&std::io::Error::other("40P01")));
    world.store.rollback(txn).await.unwrap();
    world.end().await;
}

#[tokio::test]
async fn a_claim_that_another_transaction_is_inserting_is_busy_and_the_handler_has_its_own_lock_timeout() {
    let Some(mut world) = world().await else { return };
    // The session's setting, as a role's default would be.
    let url = format!("{}{}options=-c%20lock_timeout%3D7s", world.url, if world.url.contains('?') { '&' } else { '?' });
    world.store = idem_core::Postgres::options(&url).schema(&world.schema).connect().await.unwrap();
    let mut holder = world.claimed("held").await;
    let lock_timeout: String = sqlx::query_scalar("SHOW lock_timeout").fetch_one(lend(&mut holder)).await.unwrap();
    assert_eq!(lock_timeout, "7s");
    let mut second = world.store.begin(DEADLINE).await.unwrap();
    let answer = world.store.claim(&mut second, &world.identity("held"), ClaimState::Processed).await;
    assert!(matches!(answer, Err(StoreError::LockTimeout)), "{answer:?}");
    world.store.rollback(second).await.unwrap();
    // A handler timeout shorter than the lock wait is not an outage.
    let mut third = world.store.begin(std::time::Duration::from_millis(200)).await.unwrap();
    let answer = world.store.claim(&mut third, &world.identity("held"), ClaimState::Processed).await;
    assert!(matches!(answer, Err(StoreError::LockTimeout)), "{answer:?}");
    world.store.rollback(third).await.unwrap();
    assert!(matches!(world.store.commit(holder).await, CommitResult::Done));
    world.end().await;
}

#[tokio::test]
async fn the_handler_of_many_claims_has_its_own_lock_timeout() {
    let Some(world) = world().await else { return };
    let mut txn = world.store.begin(DEADLINE).await.unwrap();
    let show =
        async |txn: &mut _| -> String { sqlx::query_scalar("SHOW lock_timeout").fetch_one(lend(txn)).await.unwrap() };
    assert_eq!(show(&mut txn).await, "1s");
    let ids = [world.identity("a"), world.identity("b")];
    world.store.claim_many(&mut txn, &[&ids[0], &ids[1]], ClaimState::Processed).await.unwrap();
    assert_eq!(show(&mut txn).await, "0", "the session's own");
    world.store.rollback(txn).await.unwrap();
    world.end().await;
}

#[tokio::test]
async fn a_transaction_has_the_limits_of_its_handler() {
    let Some(world) = world().await else { return };
    let mut txn = world.claimed("limits").await;
    for (setting, value) in [
        ("statement_timeout", "30s"),
        ("idle_in_transaction_session_timeout", "40s"),
        ("synchronous_commit", "on"),
        ("transaction_isolation", "read committed"),
        ("client_connection_check_interval", "1s"),
    ] {
        let asked = sqlx::query_scalar::<_, String>("SELECT current_setting($1)").bind(setting);
        assert_eq!(asked.fetch_one(lend(&mut txn)).await.unwrap(), value, "{setting}");
    }
    world.store.rollback(txn).await.unwrap();
    world.end().await;
}
