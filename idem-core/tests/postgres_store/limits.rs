//! The time limits of a transaction, and the errors that mean that it is tried again.

use idem_core::store::{ClaimState, Claimed, CommitResult, ErrorClass, StoreError, Transactions};
use sqlx::Executor;

use crate::world::{DEADLINE, backend, committed, fresh, handler_connection, raw, world};

#[tokio::test]
async fn a_handlers_lost_race_is_known_through_wrappers() {
    let Some(world) = world().await else { return };
    let mut txn = world.claimed("race").await;
    let error = handler_connection(&mut txn)
        .execute(sqlx::raw_sql("DO $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '40P01'; END $$"))
        .await
        .unwrap_err();
    let class = |error: &std::io::Error| world.store.classify_error(None, error);
    assert_eq!(class(&std::io::Error::other(error)), ErrorClass::Deadlock);
    assert_eq!(class(&std::io::Error::other("40P01")), ErrorClass::Ordinary);
    world.store.rollback(txn).await.unwrap();
}

#[tokio::test]
async fn a_claim_that_another_transaction_is_inserting_is_busy_and_the_handler_has_its_own_lock_timeout() {
    let Some(mut world) = world().await else { return };
    // The session's setting, as a role's default would be.
    let url = world.url_with("lock_timeout", "7s");
    world.store = idem_core::Postgres::options(&url).schema(&world.schema).connect().await.unwrap();
    let mut holder = world.claimed("held").await;
    let lock_timeout: String =
        sqlx::query_scalar("SHOW lock_timeout").fetch_one(handler_connection(&mut holder)).await.unwrap();
    assert_eq!(lock_timeout, "7s");
    let mut second = world.store.begin(DEADLINE).await.unwrap();
    let answer = world.store.claim(&mut second, &[&world.identity("held")], ClaimState::Processed).await;
    assert!(matches!(answer, Err(StoreError::LockTimeout)), "{answer:?}");
    world.store.rollback(second).await.unwrap();
    // A handler timeout shorter than the lock wait is not an outage.
    let mut third = world.store.begin(std::time::Duration::from_millis(200)).await.unwrap();
    let answer = world.store.claim(&mut third, &[&world.identity("held")], ClaimState::Processed).await;
    assert!(matches!(answer, Err(StoreError::LockTimeout)), "{answer:?}");
    world.store.rollback(third).await.unwrap();
    assert!(matches!(world.store.commit(holder).await, CommitResult::Done));
}

/// As `LOCK TABLE` and most changes of a table take. The message is then held, which is no outage.
#[tokio::test]
async fn a_claim_waits_for_a_lock_on_its_table_as_for_another_claim() {
    let Some(mut world) = world().await else { return };
    // The connection has prepared the claim.
    world.process("warm").await;
    let lock = sqlx::raw_sql("BEGIN; LOCK TABLE processed_messages IN ACCESS EXCLUSIVE MODE");
    world.other.execute(lock).await.unwrap();
    let identity = world.identity("waits");
    let claim = world.store.begin_first(DEADLINE, Some(&identity)).await;
    assert!(matches!(claim, Err(StoreError::LockTimeout)), "{claim:?}");
    world.other.execute(sqlx::raw_sql("ROLLBACK")).await.unwrap();
    world.process("waits").await;
}

#[tokio::test]
async fn a_claim_that_waits_for_another_and_loses_finds_that_one() {
    let Some(mut world) = world().await else { return };
    let key = fresh("raced");
    let holder = world.claimed(&key).await;
    let (store, copy) = (world.store.clone(), world.identity(&key));
    let claim = tokio::spawn(async move {
        loop {
            match store.begin_first(DEADLINE, Some(&copy)).await {
                // The machine is busy, and the other transaction is still open.
                Err(StoreError::LockTimeout) => {}
                claimed => break claimed,
            }
        }
    });
    let waits = "SELECT count(*) FROM pg_stat_activity
                 WHERE wait_event_type = 'Lock' AND query LIKE concat('%', encode($1, 'hex'), '%')";
    while sqlx::query_scalar::<_, i64>(waits).bind(key.as_bytes()).fetch_one(&mut world.other).await.unwrap() == 0 {
        assert!(!claim.is_finished(), "it did not wait");
        tokio::task::yield_now().await;
    }
    committed(world.store.commit(holder).await);
    let (mut txn, claimed) = claim.await.unwrap().unwrap();
    let Claimed::Found(Some(existing)) = claimed else { panic!("{claimed:?}") };
    assert!(existing.age.is_some());
    // It has a transaction with the limits of the first one.
    let shown = sqlx::query_scalar::<_, String>("SHOW statement_timeout").fetch_one(handler_connection(&mut txn)).await;
    assert_eq!(shown.unwrap(), "30s");
    world.store.rollback(txn).await.unwrap();
    assert_eq!(world.claims().await, 1);
}

#[tokio::test]
async fn the_handler_of_many_claims_has_its_own_lock_timeout() {
    let Some(world) = world().await else { return };
    let mut txn = world.store.begin(DEADLINE).await.unwrap();
    let show = async |txn: &mut _| -> String {
        sqlx::query_scalar("SHOW lock_timeout").fetch_one(handler_connection(txn)).await.unwrap()
    };
    assert_eq!(show(&mut txn).await, "1s");
    let ids = [world.identity("a"), world.identity("b")];
    world.store.claim(&mut txn, &[&ids[0], &ids[1]], ClaimState::Processed).await.unwrap();
    assert_eq!(show(&mut txn).await, "0", "the session's own");
    world.store.rollback(txn).await.unwrap();
}

#[tokio::test]
async fn a_transaction_has_the_limits_of_its_handler() {
    let Some(mut world) = world().await else { return };
    let url = world.url_with("lock_timeout", "7s");
    world.store = idem_core::Postgres::options(&url).schema(&world.schema).connect().await.unwrap();
    let mut guarded = world.store.begin(DEADLINE).await.unwrap();
    world.store.claim(&mut guarded, &[], ClaimState::Processed).await.unwrap();
    let guarded_at_once = world.store.begin_first(DEADLINE, None).await.unwrap().0;
    for mut txn in [world.claimed("limits").await, guarded, guarded_at_once] {
        for (setting, value) in [
            ("lock_timeout", "7s"),
            ("statement_timeout", "30s"),
            ("idle_in_transaction_session_timeout", "40s"),
            ("synchronous_commit", "on"),
            ("transaction_isolation", "read committed"),
            ("client_connection_check_interval", "1s"),
        ] {
            let asked = sqlx::query_scalar::<_, String>("SELECT current_setting($1)").bind(setting);
            assert_eq!(asked.fetch_one(handler_connection(&mut txn)).await.unwrap(), value, "{setting}");
        }
        world.store.rollback(txn).await.unwrap();
    }
}

/// Its statement that begins does not set the lock timeout, because the session has its own again.
#[tokio::test]
async fn a_message_without_a_claim_waits_for_locks_as_the_session_does_whatever_the_one_before_it_has_set() {
    let Some(mut world) = world().await else { return };
    let url = world.url_with("lock_timeout", "7s");
    let options = idem_core::Postgres::options(&url).schema(&world.schema);
    // One for handlers, so that each message uses the session of the previous one.
    world.store = options.connections(2).connect().await.unwrap();
    let mut sessions = Vec::new();
    for commits in [true, false, true] {
        let mut txn = world.store.begin_first(DEADLINE, None).await.unwrap().0;
        let shown = sqlx::query_scalar::<_, String>("SHOW lock_timeout").fetch_one(handler_connection(&mut txn)).await;
        assert_eq!(shown.unwrap(), "7s");
        sessions.push(backend(handler_connection(&mut txn)).await);
        raw(&mut txn, "SET lock_timeout = '3s'").await;
        if commits {
            committed(world.store.commit(txn).await);
        } else {
            world.store.rollback(txn).await.unwrap();
        }
    }
    assert!(sessions.iter().all(|session| *session == sessions[0]), "{sessions:?}");
    // A claim in this session has another lock timeout, which ends with its transaction.
    committed(world.store.commit(world.claimed("a").await).await);
    let mut txn = world.store.begin_first(DEADLINE, None).await.unwrap().0;
    let shown = sqlx::query_scalar::<_, String>("SHOW lock_timeout").fetch_one(handler_connection(&mut txn)).await;
    assert_eq!(shown.unwrap(), "7s");
    world.store.rollback(txn).await.unwrap();
}
