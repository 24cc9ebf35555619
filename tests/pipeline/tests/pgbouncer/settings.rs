//! The settings and the role of a pooler's session, which a handler can change for the next message.
//!
//! Nobody else uses these poolers, so each lends the session of a handler again.

use std::time::Duration;

use idem_conformance::store::{Setup, World};
use idem_core::store::{CommitResult, Consumers, HandlerId, Identity, Transactions, TxnState};
use idem_core::{Fingerprint, HasConnection, Key, Postgres};
use sqlx::{Executor as _, PgConnection};
use uuid::Uuid;

use crate::world::PgBouncerWorld;

pub(crate) type Txn = <Postgres as Transactions>::Txn;

const TIMEOUT: Duration = Duration::from_secs(5);

/// How a handler can change what its session may do, or what statements mean there.
const CHANGES: [&str; 13] = [
    "SET ROLE pg_monitor",
    "RESET ROLE",
    "SET SESSION AUTHORIZATION pg_monitor",
    "SET LOCAL ROLE pg_monitor",
    "SET default_transaction_read_only = off",
    "SET search_path = pg_catalog",
    "SELECT set_config('search_path', '', false)",
    "SET row_security = off",
    "SET session_replication_role = replica",
    "SET TIME ZONE 'Asia/Tokyo'",
    "SET DateStyle = 'German'",
    "SET IntervalStyle = 'iso_8601'",
    "SET client_encoding = 'LATIN1'",
];

/// What a message finds.
const SETTINGS: &str = "SELECT concat_ws('; ', session_user, current_user,
    current_setting('default_transaction_read_only'),
    current_setting('search_path'), current_setting('row_security'), current_setting('session_replication_role'),
    current_setting('TimeZone'), current_setting('DateStyle'), current_setting('IntervalStyle'),
    current_setting('client_encoding'))";

pub(crate) fn lend(txn: &mut Txn) -> &mut PgConnection {
    <Postgres as HasConnection<PgConnection>>::connection(txn)
}

async fn handler(store: &Postgres) -> HandlerId {
    store.register("billing", &["paid"]).await.unwrap()[0]
}

/// A transaction with a claim whose handler runs this.
async fn run(store: &Postgres, handler: HandlerId, key: &str, sql: &str) -> Txn {
    let identity = Identity { handler, key: Key::of(key).unwrap(), fingerprint: Fingerprint::none() };
    let (mut txn, _) = store.begin_first(TIMEOUT, Some(&identity)).await.unwrap();
    <PgBouncerWorld>::execute(lend(&mut txn), sql).await.unwrap();
    txn
}

/// The settings that the handler of this transaction finds.
async fn found(txn: &mut Txn) -> String {
    sqlx::query_scalar(SETTINGS).fetch_one(lend(txn)).await.unwrap()
}

/// The settings that the next message finds.
async fn next(store: &Postgres) -> String {
    let mut txn = store.begin(TIMEOUT).await.unwrap();
    let found = found(&mut txn).await;
    store.rollback(txn).await.unwrap();
    found
}

/// As another client of the pooler does, or `connect_query`.
async fn set(world: &PgBouncerWorld, name: &str, value: &str) {
    world.session(&format!("SELECT count(set_config('{name}', '{value}', false))")).await;
}

/// A pooler whose session has a role of its own.
async fn with_role(name: &str) -> Option<(PgBouncerWorld, String)> {
    let world = <PgBouncerWorld>::make().await?;
    let role = format!("{name}_{}", Uuid::new_v4().simple());
    world.run(&format!("CREATE ROLE {role} SUPERUSER")).await;
    set(&world, "role", &role).await;
    Some((world, role))
}

async fn drop_role(world: &PgBouncerWorld, role: &str) {
    world.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

async fn done(store: &Postgres, txn: Txn) {
    let committed = store.commit(txn).await;
    assert!(matches!(committed, CommitResult::Done), "{committed:?}");
}

#[tokio::test]
async fn the_settings_of_a_handler_end_with_its_message() {
    let Some((world, role)) = with_role("idem_role").await else { return };
    let store = world.store(Setup::default()).await.unwrap();
    let handler = handler(&store).await;
    let clean = next(&store).await;
    assert!(clean.contains(&role), "{clean}");
    for (round, change) in CHANGES.into_iter().enumerate() {
        let mut claimed = run(&store, handler, &format!("{round}"), change).await;
        assert_ne!(found(&mut claimed).await, clean, "{change}");
        done(&store, claimed).await;
        assert_eq!(next(&store).await, clean, "{change}");
        let mut natural = store.begin_first(TIMEOUT, None).await.unwrap().0;
        <PgBouncerWorld>::execute(lend(&mut natural), change).await.unwrap();
        done(&store, natural).await;
        assert_eq!(next(&store).await, clean, "{change}, without a claim");
        let failed = run(&store, handler, &format!("{round} fails"), change).await;
        store.rollback(failed).await.unwrap();
        assert_eq!(next(&store).await, clean, "{change}; ROLLBACK");
    }
    drop_role(&world, &role).await;
}

#[tokio::test]
async fn settings_that_a_handler_changes_behind_its_transaction_do_not_reach_the_next_message() {
    let Some((world, role)) = with_role("idem_role").await else { return };
    let store = world.store(Setup::default()).await.unwrap();
    let handler = handler(&store).await;
    let clean = next(&store).await;
    for (round, end) in ["ROLLBACK", "COMMIT"].into_iter().enumerate() {
        let settings = "SET search_path = pg_catalog; SET default_transaction_read_only = off; SET ROLE pg_monitor";
        let change = format!("{end}; {settings}");
        let ended = run(&store, handler, &format!("{round}"), &change).await;
        store.commit(ended).await;
        assert_eq!(next(&store).await, clean, "{end}");
    }
    drop_role(&world, &role).await;
}

/// In a batch nothing is committed then, and the messages run singly.
#[tokio::test]
async fn a_role_that_a_handler_of_a_batch_sets_does_not_reach_the_next_message() {
    let Some((world, role)) = with_role("idem_role").await else { return };
    let store = world.store(Setup::default()).await.unwrap();
    let clean = next(&store).await;
    let mut batch = run(&store, handler(&store).await, "a", "SET ROLE pg_monitor").await;
    store.check_between(&mut batch).await.unwrap();
    assert!(matches!(store.commit(batch).await, CommitResult::Refused(_)));
    assert_eq!(next(&store).await, clean);
    drop_role(&world, &role).await;
}

/// It is given to the store by the pooler as any other, also for a login.
#[tokio::test]
async fn a_store_that_logs_in_to_a_session_in_which_a_handler_has_left_settings_does_not_take_them_for_its_own() {
    let Some(world) = <PgBouncerWorld>::make().await else { return };
    let store = world.store(Setup::default()).await.unwrap();
    let handler = handler(&store).await;
    let clean = next(&store).await;
    let mut killed = store.begin(TIMEOUT).await.unwrap();
    done(&store, run(&store, handler, "a", "SET search_path = pg_catalog; SET ROLE pg_monitor").await).await;
    // A lost connection closes all that are idle. The pooler keeps their sessions, and lends one to the next login.
    let kill = "SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid())";
    lend(&mut killed).execute(kill).await.unwrap_err();
    store.rollback(killed).await.unwrap_err();
    assert_eq!(next(&store).await, clean);
    store.ping().await.unwrap();
}

/// Neither the login nor the BEGIN of a batch knows the session that the pooler lends to the statements behind a ROLLBACK:
/// it may be another one, and any client may have changed it.
#[tokio::test]
async fn a_batch_is_checked_although_the_session_in_which_it_began_is_read_only() {
    let Some(world) = <PgBouncerWorld>::make().await else { return };
    let effects = world.name("effects");
    world.run(&format!("CREATE TABLE {effects} (name text)")).await;
    let store = world.store(Setup::default()).await.unwrap();
    let handler = handler(&store).await;
    let mut batch = run(&store, handler, "a", "SELECT 1").await;
    assert_eq!(store.check_between(&mut batch).await.unwrap(), TxnState::Open);
    <PgBouncerWorld>::execute(lend(&mut batch), "ROLLBACK").await.unwrap();
    set(&world, "default_transaction_read_only", "off").await;
    // As the next handler of the batch would, which must therefore not be called.
    <PgBouncerWorld>::execute(lend(&mut batch), &format!("INSERT INTO {effects} VALUES ('behind')")).await.unwrap();
    assert_eq!(world.number(&format!("SELECT count(*) FROM {effects}")).await, 1, "it is committed at once");
    assert_eq!(store.check_between(&mut batch).await.unwrap(), TxnState::Ended);
    store.rollback(batch).await.unwrap();
}

#[tokio::test]
async fn a_reset_between_the_messages_of_a_batch_keeps_the_settings_that_the_pooler_has_made() {
    let Some((world, role)) = with_role("idem_role").await else { return };
    set(&world, "search_path", "pg_catalog").await;
    let store = world.options(Setup::default()).reset_between_messages().connect().await.unwrap();
    let handler = handler(&store).await;
    let clean = next(&store).await;
    assert!(clean.contains(&role) && clean.contains("pg_catalog"), "{clean}");
    let change = "SET search_path = nowhere; SET TIME ZONE 'Asia/Tokyo'; SET ROLE pg_monitor";
    let mut batch = run(&store, handler, "a", change).await;
    assert_eq!(store.check_between(&mut batch).await.unwrap(), TxnState::Open);
    assert_eq!(found(&mut batch).await, clean);
    done(&store, batch).await;
    assert_eq!(next(&store).await, clean);
    let made = "SELECT count(*) WHERE current_setting('search_path') = 'pg_catalog' AND current_user LIKE 'idem_role%'";
    assert_eq!(world.session(made).await, 1, "another client of the pooler finds them as well");
    drop_role(&world, &role).await;
}

/// A function with the rights of another role sets what the role of the worker may not set.
#[tokio::test]
async fn a_setting_that_needs_a_privilege_keeps_no_other_one_from_being_set() {
    let Some(world) = PgBouncerWorld::with_read_only_role().await else { return };
    let store = world.store(Setup::default()).await.unwrap();
    let handler = handler(&store).await;
    let turn_off = world.name("turn_off_triggers");
    let function = format!(
        "CREATE FUNCTION {turn_off}() RETURNS text LANGUAGE sql SECURITY DEFINER
         AS $$ SELECT set_config('session_replication_role', 'replica', false) $$"
    );
    world.run(&function).await;
    let clean = next(&store).await;
    let change = format!("SELECT {turn_off}(); SET search_path = pg_catalog");
    done(&store, run(&store, handler, "a", &change).await).await;
    assert_eq!(next(&store).await, clean.replace("origin", "replica"));
    world.drop_role().await;
}
