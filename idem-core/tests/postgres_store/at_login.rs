//! The settings of transactions with which a session starts if it can: what handlers see, and what they can change.

use std::time::Duration;

use idem_core::Postgres;
use idem_core::store::postgres::Txn;
use idem_core::store::{ClaimState, Claims, StoreError, Transactions};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection};

use crate::proxy::Proxy;
use crate::world::{DEADLINE, World, backend, committed, fresh, handler_connection, raw, url, world};

/// The limits that a handler sees: for locks, for statements, and for a transaction that is idle.
async fn seen(txn: &mut Txn) -> String {
    let asked = "SELECT concat_ws(' ', current_setting('lock_timeout'), current_setting('statement_timeout'),
                     current_setting('idle_in_transaction_session_timeout'))";
    sqlx::query_scalar(asked).fetch_one(handler_connection(txn)).await.unwrap()
}

/// The settings of transactions that the session has had since its login, and that the transaction has not set.
async fn given(txn: &mut Txn) -> String {
    let asked = "SELECT concat_ws(' ', string_agg(setting, ' ' ORDER BY name)) FROM pg_settings WHERE source = 'client'
                   AND (name LIKE '%timeout' AND name NOT LIKE 'tcp%' OR name = 'default_transaction_isolation')";
    sqlx::query_scalar(asked).fetch_one(handler_connection(txn)).await.unwrap()
}

/// A store with one connection for handlers, whose sessions have this setting by themselves.
async fn narrow(setting: &str, value: &str) -> Option<World> {
    let mut world = world().await?;
    let options = Postgres::options(world.url_with(setting, value)).schema(&world.schema);
    world.store = options.connections(2).connect().await.unwrap();
    Some(world)
}

/// Begins for a handler with this timeout, in one of three ways.
async fn begun(world: &World, way: usize, timeout: Duration) -> Txn {
    match way % 3 {
        0 => {
            let identity = world.identity(&fresh("key"));
            world.store.begin_with_claim(timeout, &identity, ClaimState::Processed).await.unwrap().0
        }
        1 => world.store.begin_guarded(timeout).await.unwrap(),
        _ => {
            let mut txn = world.store.begin(timeout).await.unwrap();
            world.store.guard(&mut txn).await.unwrap();
            txn
        }
    }
}

/// The statement timeout is not among them: that of the session counts if it is shorter, and may change at any login.
#[tokio::test]
async fn a_session_starts_with_the_idle_timeout_of_its_handler_and_its_isolation_level() {
    for (setting, value, timeout, limits, given_at_login) in [
        ("application_name", "idem", 30, "0 30s 40s", "read committed 40000"),
        ("statement_timeout", "20s", 30, "0 20s 40s", "read committed 40000"),
        ("idle_in_transaction_session_timeout", "7s", 5, "0 5s 15s", "read committed 15000"),
        ("default_transaction_isolation", "serializable", 30, "0 30s 40s", "read committed 40000"),
    ] {
        let Some(world) = narrow(setting, value).await else { return };
        for way in 0..6 {
            let mut txn = begun(&world, way, Duration::from_secs(timeout)).await;
            assert_eq!(seen(&mut txn).await, limits, "{setting} = {value}, message {way}");
            assert_eq!(given(&mut txn).await, given_at_login, "{setting} = {value}, message {way}");
            committed(world.store.commit(txn).await);
        }
        world.end().await;
    }
}

#[tokio::test]
async fn each_message_has_the_limits_of_its_own_handler_whichever_the_session_has_started_with() {
    let Some(world) = narrow("application_name", "idem").await else { return };
    let mut sessions = Vec::new();
    for way in 0..3 {
        for (timeout, limits) in [
            (DEADLINE, "0 30s 40s"),
            (Duration::from_secs(20), "0 20s 30s"),
            (Duration::from_millis(1500), "0 1500ms 11500ms"),
            (Duration::from_secs(60), "0 1min 70s"),
        ] {
            let mut txn = begun(&world, way, timeout).await;
            assert_eq!(seen(&mut txn).await, limits, "way {way}");
            sessions.push(backend(handler_connection(&mut txn)).await);
            committed(world.store.commit(txn).await);
        }
    }
    assert!(sessions.iter().all(|session| *session == sessions[0]), "{sessions:?}");
    world.end().await;
}

#[tokio::test]
async fn the_next_message_has_its_limits_whatever_a_handler_has_set() {
    let Some(world) = narrow("lock_timeout", "7s").await else { return };
    let limits = "7s 30s 40s";
    for (round, (change, itself)) in [
        ("SET lock_timeout = '3s'; SET statement_timeout = '4s'", "3s 4s 40s"),
        ("SET LOCAL lock_timeout = '3s'; SET LOCAL statement_timeout = 0", "3s 0 40s"),
        ("SET idle_in_transaction_session_timeout = 0", "7s 30s 0"),
        ("SET LOCAL idle_in_transaction_session_timeout = 0; RESET idle_in_transaction_session_timeout", limits),
        ("SET LOCAL lock_timeout = '3s'; SET LOCAL lock_timeout TO DEFAULT", limits),
        ("SET lock_timeout = '3s'; SET idle_in_transaction_session_timeout = 0; RESET ALL", "7s 0 40s"),
        ("ROLLBACK; SET idle_in_transaction_session_timeout = 0; SET lock_timeout = '3s'", "3s 0 0"),
        ("COMMIT; SET idle_in_transaction_session_timeout = 0; BEGIN", "7s 0 0"),
    ]
    .into_iter()
    .enumerate()
    {
        for way in 0..2 {
            let mut txn = begun(&world, way, DEADLINE).await;
            assert_eq!(seen(&mut txn).await, limits, "before {change}");
            raw(&mut txn, change).await;
            assert_eq!(seen(&mut txn).await, itself, "{change}");
            ended(&world, txn, round % 2 == 0).await;
        }
    }
    let mut txn = begun(&world, 0, DEADLINE).await;
    for statement in ["ROLLBACK", "DISCARD ALL"] {
        raw(&mut txn, statement).await;
    }
    ended(&world, txn, true).await;
    let mut txn = begun(&world, 1, DEADLINE).await;
    assert_eq!(seen(&mut txn).await, limits);
    ended(&world, txn, false).await;
    world.end().await;
}

/// Ends a transaction, which its handler may have ended already.
async fn ended(world: &World, txn: Txn, commits: bool) {
    if commits {
        let _ = world.store.commit(txn).await;
    } else {
        let _ = world.store.rollback(txn).await;
    }
}

/// As by a pooler in session mode that knows idem's other settings.
#[tokio::test]
async fn a_login_that_is_refused_with_these_settings_is_tried_once_without_them() {
    let Some(mut world) = world().await else { return };
    let proxy = Proxy::before(&world.url).await;
    let through = format!("{}&options=-c%20default_transaction_isolation%3Dserializable", proxy.url);
    world.store = Postgres::options(through).schema(&world.schema).connect().await.unwrap();
    let logins = |before: usize| proxy.connections() - before;
    // Another login would be refused as well, and count as one more of a wrong password.
    for code in ["28P01", "53300", "57P03"] {
        let before = proxy.connections();
        proxy.refuse("idle_in_transaction_session_timeout=", code);
        let refused = world.store.begin_guarded(DEADLINE).await;
        assert!(matches!(refused, Err(StoreError::ConnectionLost(_))), "{code}");
        assert_eq!(logins(before), 1, "{code}");
    }
    let mut open = Vec::new();
    for tried in [2, 1, 1] {
        let before = proxy.connections();
        proxy.refuse("idle_in_transaction_session_timeout=", "08P01");
        let mut txn = begun(&world, open.len(), DEADLINE).await;
        assert_eq!(logins(before), tried, "it is not tried again");
        assert_eq!((&*seen(&mut txn).await, &*given(&mut txn).await), ("0 30s 40s", "serializable"));
        let level = sqlx::query_scalar::<_, String>("SHOW transaction_isolation");
        assert_eq!(level.fetch_one(handler_connection(&mut txn)).await.unwrap(), "read committed");
        open.push(txn);
    }
    drop(open);
    world.end().await;
}

/// The server refuses the login for another reason, which is the one that is reported.
#[tokio::test]
async fn a_login_that_is_refused_without_these_settings_too_fails() {
    let Some(mut world) = world().await else { return };
    let proxy = Proxy::before(&world.url).await;
    world.store = Postgres::options(&proxy.url).schema(&world.schema).connect().await.unwrap();
    let before = proxy.connections();
    proxy.refuse("default_transaction_read_only=", "3D000");
    assert!(matches!(world.store.begin_guarded(DEADLINE).await, Err(StoreError::ConnectionLost(_))));
    assert_eq!(proxy.connections() - before, 2);
    // Nothing is concluded from that.
    proxy.refuse("default_transaction_read_only=of nobody", "3D000");
    let mut txn = world.store.begin_guarded(DEADLINE).await.unwrap();
    assert_eq!(given(&mut txn).await, "read committed 40000");
    drop(txn);
    world.end().await;
}

/// RESET ALL does not return to its lock timeout.
#[tokio::test]
async fn limits_that_a_trigger_of_the_database_sets_at_each_login_are_those_of_the_session() {
    let Some(url) = url() else { return };
    let mut admin = PgConnection::connect(&url).await.unwrap();
    let version = sqlx::query_scalar::<_, i32>("SELECT current_setting('server_version_num')::int");
    if version.fetch_one(&mut admin).await.unwrap() < 170_000 {
        eprintln!("skipped: PostgreSQL has such triggers from version 17 on");
        return;
    }
    let name = fresh("idem_login");
    admin.execute(sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}")))).await.unwrap();
    let target: PgConnectOptions = url.parse().unwrap();
    let there = target.database(&name).to_url_lossy().to_string();
    let trigger = "CREATE FUNCTION at_login() RETURNS event_trigger LANGUAGE plpgsql AS
             $$ BEGIN SET lock_timeout = '7s'; SET statement_timeout = '15s'; END $$;
         CREATE EVENT TRIGGER at_login ON login EXECUTE FUNCTION at_login()";
    PgConnection::connect(&there).await.unwrap().execute(sqlx::raw_sql(trigger)).await.unwrap();
    let store = Postgres::options(&there).connections(2).connect().await.unwrap();
    for _ in 0..3 {
        let mut txn = store.begin_guarded(DEADLINE).await.unwrap();
        assert_eq!(seen(&mut txn).await, "7s 15s 40s");
        committed(store.commit(txn).await);
    }
    drop(store);
    admin.execute(sqlx::raw_sql(AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)")))).await.unwrap();
}
