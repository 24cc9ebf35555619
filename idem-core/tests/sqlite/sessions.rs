//! Changes that a handler makes to its connection; the next message does not see them.

use idem_core::store::{ClaimState, CommitResult, Transactions, TxnState};
use sqlx::AssertSqlSafe;
use sqlx::sqlite::LockedSqliteHandle;

use crate::world::{LONG, World, lent, run};

/// Values that show whether a connection is in its initial state.
const STATE: [&str; 14] = [
    "(SELECT count(*) FROM sqlite_temp_schema)",
    "(SELECT count(*) FROM pragma_database_list WHERE name <> 'temp')",
    "(SELECT query_only FROM pragma_query_only)",
    "(SELECT max_page_count FROM pragma_max_page_count)",
    "(SELECT foreign_keys FROM pragma_foreign_keys)",
    "(SELECT recursive_triggers FROM pragma_recursive_triggers)",
    "(SELECT ignore_check_constraints FROM pragma_ignore_check_constraints)",
    "(SELECT writable_schema FROM pragma_writable_schema)",
    "(SELECT defer_foreign_keys FROM pragma_defer_foreign_keys)",
    "(SELECT reverse_unordered_selects FROM pragma_reverse_unordered_selects)",
    "(SELECT synchronous FROM pragma_synchronous)",
    "(SELECT timeout FROM pragma_busy_timeout)",
    "(SELECT locking_mode FROM pragma_locking_mode)",
    "('a' LIKE 'A')",
];

async fn state(txn: &mut idem_core::store::sqlite::Txn) -> String {
    let text = format!("SELECT {}", STATE.join(" || ' ' || "));
    sqlx::query_scalar(AssertSqlSafe(text)).fetch_one(lent(txn)).await.unwrap()
}

/// Runs this on a connection, and ends its message with a commit or a rollback; the next one sees nothing of it.
async fn leaves_nothing(change: &'static str) {
    let world = World::new().await;
    let mut first = world.claimed("first").await;
    let clean = state(&mut first).await;
    world.store.rollback(first).await.unwrap();
    for (n, commits) in [true, false].into_iter().enumerate() {
        let mut txn = world.claimed(&format!("changes {n}")).await;
        sqlx::raw_sql(change).execute(lent(&mut txn)).await.unwrap();
        if commits {
            assert!(matches!(world.store.commit(txn).await, CommitResult::Done), "{change}");
        } else {
            world.store.rollback(txn).await.unwrap();
        }
        let mut next = world.claimed(&format!("next {n}")).await;
        assert_eq!(state(&mut next).await, clean, "{change}");
        run(&mut next, "INSERT INTO effects DEFAULT VALUES").await.unwrap();
        assert!(matches!(world.store.commit(next).await, CommitResult::Done), "{change}");
        assert_eq!(world.count("effects").await, n as i64 + 1, "{change}");
        world.store.ping().await.unwrap();
    }
}

macro_rules! leaves_nothing {
    ($($name:ident: $sql:expr;)*) => {$(
        #[tokio::test]
        async fn $name() {
            leaves_nothing($sql).await;
        }
    )*};
}

leaves_nothing! {
    a_temporary_table_ends_with_its_message: "CREATE TEMP TABLE effects (id INTEGER PRIMARY KEY)";
    a_temporary_view_ends_with_its_message: "CREATE TEMP VIEW effects AS SELECT 1 AS id";
    a_temporary_trigger_ends_with_its_message:
        "CREATE TEMP TRIGGER gone AFTER INSERT ON main.effects BEGIN DELETE FROM effects; END";
    an_attached_database_ends_with_its_message: "ATTACH ':memory:' AS elsewhere";
    read_only_ends_with_its_message: "PRAGMA query_only = 1";
    a_limit_of_pages_ends_with_its_message: "PRAGMA max_page_count = 1";
    ignored_checks_end_with_their_message: "PRAGMA ignore_check_constraints = 1";
    recursive_triggers_end_with_their_message: "PRAGMA recursive_triggers = 1";
    a_writable_schema_ends_with_its_message: "PRAGMA writable_schema = 1";
    deferred_foreign_keys_end_with_their_message: "PRAGMA defer_foreign_keys = 1";
    exact_patterns_end_with_their_message: "PRAGMA case_sensitive_like = 1";
    a_reversed_order_ends_with_its_message: "PRAGMA reverse_unordered_selects = 1";
    impatience_ends_with_its_message: "PRAGMA busy_timeout = 0";
    an_exclusive_lock_ends_with_its_message: "PRAGMA locking_mode = EXCLUSIVE";
}

/// These can be changed only outside of a transaction.
#[tokio::test]
async fn settings_behind_a_rollback_end_with_their_message() {
    for commits in [true, false] {
        let world = World::new().await;
        let mut first = world.claimed("first").await;
        let clean = state(&mut first).await;
        run(&mut first, "ROLLBACK").await.unwrap();
        run(&mut first, "PRAGMA foreign_keys = 0; PRAGMA synchronous = OFF; PRAGMA temp_store = 1").await.unwrap();
        assert_ne!(state(&mut first).await, clean);
        if commits {
            assert!(matches!(world.store.commit(first).await, CommitResult::RolledBack));
        } else {
            world.store.rollback(first).await.unwrap();
        }
        let mut next = world.claimed("next").await;
        assert_eq!(state(&mut next).await, clean);
        world.store.rollback(next).await.unwrap();
    }
}

/// A handler that drops what it made costs nothing.
#[tokio::test]
async fn a_connection_that_was_left_as_it_was_is_used_again() {
    let world = World::new().await;
    let mut first = world.claimed("first").await;
    run(&mut first, "CREATE TEMP TABLE staged (id INTEGER); PRAGMA recursive_triggers = 1").await.unwrap();
    run(&mut first, "INSERT INTO main.effects DEFAULT VALUES").await.unwrap();
    run(&mut first, "DROP TABLE staged; PRAGMA recursive_triggers = 0; PRAGMA cache_size = 4711").await.unwrap();
    assert!(matches!(world.store.commit(first).await, CommitResult::Done));
    let mut next = world.claimed("next").await;
    let size: i64 = sqlx::query_scalar("PRAGMA cache_size").fetch_one(lent(&mut next)).await.unwrap();
    assert_eq!(size, 4711, "it is the same connection");
    world.store.rollback(next).await.unwrap();
}

/// Two claims in one transaction: the first handler does this, and the second one is about to begin.
async fn first_of_two(world: &World, key: &str, does: &'static str) -> idem_core::store::sqlite::Txn {
    let ids = [world.identity(&format!("{key} 1")), world.identity(&format!("{key} 2"))];
    let mut txn = world.store.begin(LONG).await.unwrap();
    world.store.claim(&mut txn, &[&ids[0], &ids[1]], ClaimState::Processed).await.unwrap();
    run(&mut txn, does).await.unwrap();
    assert_ne!(world.store.check_between(&mut txn).await.unwrap(), TxnState::Ended);
    txn
}

#[tokio::test]
async fn a_batch_in_which_a_handler_changes_what_statements_mean_is_refused() {
    let world = World::new().await;
    for change in ["CREATE TEMP TABLE effects (id INTEGER PRIMARY KEY)", "PRAGMA ignore_check_constraints = 1"] {
        let mut txn = first_of_two(&world, change, change).await;
        run(&mut txn, "INSERT INTO effects DEFAULT VALUES").await.unwrap();
        let answer = world.store.commit(txn).await;
        assert!(matches!(answer, CommitResult::Refused(_)), "{change}: {answer:?}");
        assert_eq!((world.count("idem_processed_messages").await, world.count("effects").await), (0, 0), "{change}");
    }
    let mut ends = first_of_two(&world, "ends", "CREATE TEMP TABLE effects (id INTEGER PRIMARY KEY)").await;
    run(&mut ends, "COMMIT").await.unwrap_err();
    assert!(matches!(world.store.commit(ends).await, CommitResult::CommitRefused));
    let deferred = first_of_two(&world, "defers", "PRAGMA defer_foreign_keys = 1").await;
    assert!(matches!(world.store.commit(deferred).await, CommitResult::Done), "the commit checks them");
    assert_eq!(world.count("idem_processed_messages").await, 2);
}

/// sqlx gives handlers the hooks of their connection. Without idem's, the COMMIT of any later handler would be allowed.
#[tokio::test]
async fn a_replaced_hook_ends_with_its_message_and_nobody_shares_a_transaction_behind_it() {
    let world = World::new().await;
    let mut single = world.claimed("single").await;
    lent(&mut single).lock_handle().await.unwrap().set_commit_hook(|| true);
    assert!(matches!(world.store.commit(single).await, CommitResult::Done));
    let mut shared = first_of_two(&world, "shared", "SELECT 1").await;
    run(&mut shared, "COMMIT").await.unwrap_err();
    assert!(matches!(world.store.commit(shared).await, CommitResult::CommitRefused));

    let hooks: [fn(&mut LockedSqliteHandle<'_>); 4] = [
        |handle| handle.set_commit_hook(|| true),
        |handle| handle.remove_rollback_hook(),
        |handle| handle.set_rollback_hook(|| {}),
        |handle| handle.set_progress_handler(9, || true),
    ];
    for hook in hooks {
        let mut txn = first_of_two(&world, "replaced", "SELECT 1").await;
        hook(&mut lent(&mut txn).lock_handle().await.unwrap());
        assert_eq!(world.store.check_between(&mut txn).await.unwrap(), TxnState::Ended);
        world.store.rollback(txn).await.unwrap();
        assert_eq!(world.count("idem_processed_messages").await, 1);
    }
}
