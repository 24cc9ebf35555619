//! Handlers that share a transaction: what they may not do to it, and what one of them leaves to the next.

use std::time::Duration;

use idem_core::store::{ClaimState, CommitResult, InboxRows, RowKind, Transactions, TxnOutcome, TxnState};
use sqlx::{AssertSqlSafe, Executor};

use crate::sessions::{one_connection, state};
use crate::world::{DEADLINE, World, backend, handler_connection, raw, world};

/// Begins and makes three claims at once, as a batch does.
async fn batch(world: &World, name: &str) -> idem_core::store::postgres::Txn {
    let ids: Vec<_> = (0..3).map(|n| world.identity(&format!("{name} {n}"))).collect();
    let mut txn = world.store.begin(DEADLINE).await.unwrap();
    world.store.claim(&mut txn, &ids.iter().collect::<Vec<_>>(), ClaimState::Processed).await.unwrap();
    txn
}

#[tokio::test]
async fn only_idem_commits_a_batch() {
    let Some(mut world) = world().await else { return };
    let claims = format!("{}.processed_messages", world.schema);
    let disabled = format!("ALTER TABLE {claims} DISABLE TRIGGER ALL; COMMIT");
    let ends: [&[&str]; 17] = [
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
        &["SET LOCAL session_replication_role = replica", "COMMIT"],
    ];
    let prepares: i32 = sqlx::query_scalar("SELECT current_setting('max_prepared_transactions')::int")
        .fetch_one(&mut world.other)
        .await
        .unwrap();
    for statements in ends {
        let mut txn = batch(&world, "ended").await;
        let (last, before) = statements.split_last().unwrap();
        for statement in before {
            handler_connection(&mut txn).execute(sqlx::raw_sql(AssertSqlSafe(*statement))).await.unwrap();
        }
        let refused =
            handler_connection(&mut txn).execute(sqlx::raw_sql(AssertSqlSafe(*last))).await.unwrap_err().to_string();
        let named = ["let idem commit", "pending trigger events", "permission denied", "read-only"];
        let by_the_server = prepares == 0 && refused.contains("prepared transactions are disabled");
        assert!(by_the_server || named.iter().any(|text| refused.contains(text)), "{statements:?}: {refused}");
        let undone = world.store.rollback(txn).await.unwrap();
        assert_ne!(undone, TxnOutcome::CommittedEarly, "{statements:?}");
        assert_eq!(world.claims().await, 0, "{statements:?}");
    }
}

/// Beside claims of other transactions, and when rows start.
#[tokio::test]
async fn only_idem_commits_a_batch_however_it_begins() {
    let Some(mut world) = world().await else { return };
    let mut beside = world.store.begin(DEADLINE).await.unwrap();
    raw(&mut beside, "SELECT 1").await;
    let ids = ["a", "b"].map(|key| world.identity(key));
    world.store.claim(&mut beside, &[&ids[0], &ids[1]], ClaimState::Processed).await.unwrap();

    world.schedule("c", Ok(Duration::ZERO)).await;
    world.schedule("d", Ok(Duration::ZERO)).await;
    let rows = world.fetch(RowKind::Ordinary, 2).await;
    let mut rows_start = world.store.begin(DEADLINE).await.unwrap();
    let started =
        world.store.start(&mut rows_start, &rows.iter().collect::<Vec<_>>(), ClaimState::Processed).await.unwrap();
    assert_eq!(started, [true, true]);

    for mut txn in [beside, rows_start] {
        let refused = handler_connection(&mut txn).execute(sqlx::raw_sql("COMMIT")).await.unwrap_err().to_string();
        assert!(refused.contains("let idem commit"), "{refused}");
        assert_eq!(world.store.rollback(txn).await.unwrap(), TxnOutcome::Ended);
    }
    assert_eq!(world.number("SELECT count(*) FROM processed_messages WHERE processed_at IS NOT NULL").await, 0);
    assert_eq!(world.number("SELECT count(*) FROM inbox_messages").await, 2);
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
            handler_connection(&mut txn).execute(sqlx::raw_sql(AssertSqlSafe(*statement))).await.unwrap();
        }
        let answer = world.store.commit(txn).await;
        assert!(matches!(answer, CommitResult::Done), "{statements:?}: {answer:?}");
        assert_eq!(world.claims().await, 3 * (n as i64 + 1));
    }
}

/// Two claims in one transaction: the first handler does this, and the second one is about to begin.
async fn first_of_two(world: &World, key: &str, does: &'static str) -> idem_core::store::postgres::Txn {
    let ids = [world.identity(&format!("{key} 1")), world.identity(&format!("{key} 2"))];
    let mut txn = world.store.begin(DEADLINE).await.unwrap();
    world.store.claim(&mut txn, &[&ids[0], &ids[1]], ClaimState::Processed).await.unwrap();
    raw(&mut txn, does).await;
    assert_ne!(world.store.check_between(&mut txn).await.unwrap(), TxnState::Ended);
    txn
}

#[tokio::test]
async fn a_batch_in_which_a_handler_changes_what_statements_mean_is_refused() {
    let Some(mut world) = one_connection().await else { return };
    for change in [
        "SET LOCAL ROLE pg_read_all_stats",
        "SET LOCAL search_path TO nowhere",
        "SET search_path TO nowhere",
        "SET LOCAL row_security = off",
        "SET LOCAL session_replication_role = replica",
        "SET LOCAL TIME ZONE 'Asia/Tokyo'",
        "SET LOCAL DateStyle = 'German'",
        "SET LOCAL client_encoding = 'LATIN1'",
        "CREATE TEMP TABLE IF NOT EXISTS staged (what text) ON COMMIT DROP",
    ] {
        let txn = first_of_two(&world, change, change).await;
        let answer = world.store.commit(txn).await;
        assert!(matches!(answer, CommitResult::Refused(_)), "{change}: {answer:?}");
        // In a transaction with a single claim it may do so.
        let mut alone = world.claimed(change).await;
        raw(&mut alone, change).await;
        assert!(matches!(world.store.commit(alone).await, CommitResult::Done), "{change}");
    }
    let txn = first_of_two(&world, "tenant", "SET LOCAL app.tenant = 'acme'").await;
    assert!(matches!(world.store.commit(txn).await, CommitResult::Done), "as the documentation says");
    assert_eq!(world.claims().await, 9 + 2);
}

/// It is halved until each message is alone, and logins are dear.
#[tokio::test]
async fn a_batch_that_is_refused_for_its_settings_closes_no_session() {
    let Some(world) = one_connection().await else { return };
    let mut txn = first_of_two(&world, "path", "SET search_path TO nowhere").await;
    let session = backend(handler_connection(&mut txn)).await;
    let answer = world.store.commit(txn).await;
    assert!(matches!(answer, CommitResult::Refused(_)), "{answer:?}");
    assert_eq!(backend(handler_connection(&mut world.claimed("next").await)).await, session);
}

#[tokio::test]
async fn a_batch_can_reset_between_its_messages() {
    let Some(mut world) = world().await else { return };
    // A setting of the session whose value has a unit.
    let options =
        idem_core::Postgres::options(world.url_with("lock_timeout", "7s")).schema(&world.schema).connections(2);
    world.store = options.reset_between_messages().connect().await.unwrap();
    let mut clean = world.claimed("clean").await;
    let state_of_one = state(&mut clean).await;
    world.store.rollback(clean).await.unwrap();
    for (n, change) in [
        "SET LOCAL app.tenant = 'acme'",
        "SET LOCAL ROLE pg_read_all_stats",
        "SET SESSION AUTHORIZATION pg_read_all_stats",
        "SET LOCAL search_path TO nowhere; SET LOCAL TIME ZONE 'Asia/Tokyo'; SET lock_timeout = 1",
        "SET LOCAL statement_timeout = 7000; SET LOCAL idle_in_transaction_session_timeout = 7000",
        "CREATE TEMP TABLE staged (what text) ON COMMIT DROP; DECLARE rows CURSOR FOR SELECT * FROM staged",
    ]
    .into_iter()
    .enumerate()
    {
        let mut txn = first_of_two(&world, &n.to_string(), change).await;
        assert_eq!(state(&mut txn).await, state_of_one, "{change}");
        for (setting, value) in [("statement_timeout", "30s"), ("idle_in_transaction_session_timeout", "40s")] {
            let asked = sqlx::query_scalar::<_, String>("SELECT current_setting($1)").bind(setting);
            assert_eq!(asked.fetch_one(handler_connection(&mut txn)).await.unwrap(), value, "{setting}");
        }
        assert!(matches!(world.store.commit(txn).await, CommitResult::Done), "{change}");
    }
    // A handler that has ended the transaction is detected at once.
    let ids = [world.identity("a"), world.identity("b")];
    let mut txn = world.store.begin(DEADLINE).await.unwrap();
    world.store.claim(&mut txn, &[&ids[0], &ids[1]], ClaimState::Processed).await.unwrap();
    raw(&mut txn, "ROLLBACK").await;
    assert_eq!(world.store.check_between(&mut txn).await.unwrap(), TxnState::Ended);
    world.store.rollback(txn).await.unwrap();
}
