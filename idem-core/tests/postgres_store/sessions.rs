//! Changes that a handler makes to its session; the next message does not see them.

use idem_core::store::{ClaimState, Claimed, CommitResult, ErrorClass, Identity, StoreError, Transactions};
use idem_core::{Fingerprint, Key, Postgres};
use sqlx::{AssertSqlSafe, Connection as _, Executor, PgConnection};

use crate::world::{DEADLINE, World, backend, committed, handler_connection, raw, world, world_with};

/// One connection for all handlers, so that each message uses the session of the previous one.
pub(crate) async fn one_connection() -> Option<World> {
    world_with(|options| options.connections(2)).await
}

/// A query that shows whether a session is in its initial state.
const CLEAN: &str = "
    SELECT concat_ws(' ', current_user = session_user, session_user = (SELECT usename FROM pg_user WHERE usesysid =
               (SELECT usesysid FROM pg_stat_activity WHERE pid = pg_backend_pid())),
           current_setting('default_transaction_read_only'), current_setting('search_path'),
           coalesce(nullif(current_setting('app.tenant', true), ''), 'no tenant'), current_setting('lock_timeout'),
           current_setting('synchronous_commit'), current_setting('TimeZone'),
           current_setting('client_connection_check_interval', true), current_setting('tcp_keepalives_idle'),
           (SELECT count(*) FROM pg_listening_channels()), (SELECT count(*) FROM pg_cursors WHERE is_holdable),
           (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
           (SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()))";

pub(crate) async fn state(txn: &mut idem_core::store::postgres::Txn) -> String {
    sqlx::query_scalar(CLEAN).fetch_one(handler_connection(txn)).await.unwrap()
}

/// Runs this in a session, and ends its message with a commit or a rollback; the next one sees nothing of it.
async fn leaves_nothing(abuse: &'static str) {
    let Some(world) = one_connection().await else { return };
    let mut first = world.claimed("first").await;
    let clean = state(&mut first).await;
    world.store.rollback(first).await.unwrap();
    for (n, commits) in [true, false].into_iter().enumerate() {
        let mut txn = world.claimed(&format!("abuses {n}")).await;
        // Errors are ignored, as a careless handler does.
        let _ = handler_connection(&mut txn).execute(sqlx::raw_sql(abuse)).await;
        if commits {
            let answer = world.store.commit(txn).await;
            assert!(!matches!(answer, CommitResult::Unknown(_)), "{abuse}: {answer:?}");
        } else {
            world.store.rollback(txn).await.unwrap();
        }
        let mut next = world.claimed(&format!("next {n}")).await;
        assert_eq!(state(&mut next).await, clean, "{abuse}");
        assert!(matches!(world.store.commit(next).await, CommitResult::Done), "{abuse}");
        // idem's statements, including those for many messages.
        world.store.ping().await.unwrap();
        let ids = [world.identity(&format!("many {n} 1")), world.identity(&format!("many {n} 2"))];
        let mut many = world.store.begin(DEADLINE).await.unwrap();
        world.store.claim(&mut many, &[&ids[0], &ids[1]], ClaimState::Processed).await.unwrap();
        assert!(matches!(world.store.commit(many).await, CommitResult::Done), "{abuse}");
    }
}

/// Logins are dear, and few happen at the same time.
#[tokio::test]
async fn what_is_not_supported_closes_no_session() {
    let Some(world) = one_connection().await else { return };
    let mut txn = world.claimed("locks").await;
    let pid = backend(handler_connection(&mut txn)).await;
    let locks = "SELECT count(*) FROM pg_class FOR UPDATE";
    let error = handler_connection(&mut txn).execute(locks).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("0A000"));
    world.store.classify_error(Some(&mut txn), &error);
    world.store.rollback(txn).await.unwrap();
    assert_eq!(backend(handler_connection(&mut world.claimed("next").await)).await, pid);
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
    a_role_ends_with_its_message: "SET ROLE pg_read_all_stats";
    another_user_ends_with_its_message: "SET SESSION AUTHORIZATION pg_read_all_stats";
    settings_end_with_their_message: "SET search_path TO nowhere; SET app.tenant = 'acme'; SET lock_timeout = '3s';
        SET synchronous_commit = off; SET TIME ZONE 'Asia/Tokyo'; SET tcp_keepalives_idle = 1";
    writing_outside_ends_with_its_message: "SET default_transaction_read_only = off";
    a_channel_ends_with_its_message: "LISTEN orders";
    a_temporary_table_ends_with_its_message: "CREATE TEMP TABLE payments (id int)";
    a_lock_of_the_session_ends_with_its_message: "SELECT pg_advisory_lock(4711)";
    a_cursor_ends_with_its_message: "DECLARE rows CURSOR WITH HOLD FOR SELECT 1";
    removed_statements_harm_only_their_message: "DEALLOCATE ALL";
    a_discarded_session_harms_only_its_message: "ROLLBACK; DISCARD ALL";
    settings_behind_a_rollback_end_with_their_message: "ROLLBACK; SET default_transaction_read_only = off;
        SET ROLE pg_read_all_stats; SET search_path TO nowhere; LISTEN orders; SELECT pg_advisory_lock(4711)";
}

/// An insert that writes nothing because of ON CONFLICT would otherwise use the number of another message.
#[tokio::test]
async fn the_last_value_of_a_sequence_ends_with_its_message() {
    let Some(mut world) = one_connection().await else { return };
    world.other.execute(sqlx::raw_sql("CREATE SEQUENCE numbers")).await.unwrap();
    let next = format!("SELECT nextval('{}.numbers')", world.schema);
    for commits in [true, false] {
        let mut first = world.claimed("first").await;
        handler_connection(&mut first).execute(sqlx::raw_sql(AssertSqlSafe(&*next))).await.unwrap();
        let session = backend(handler_connection(&mut first)).await;
        if commits {
            assert!(matches!(world.store.commit(first).await, CommitResult::Done));
        } else {
            world.store.rollback(first).await.unwrap();
        }
        world.schedule(&format!("scheduled {commits}"), Ok(DEADLINE)).await;
        let mut second = world.claimed("second").await;
        assert_eq!(backend(handler_connection(&mut second)).await, session);
        let last = sqlx::query_scalar::<_, i64>("SELECT lastval()").fetch_one(handler_connection(&mut second)).await;
        assert_eq!(last.unwrap_err().as_database_error().unwrap().code().unwrap(), "55000", "it is not defined");
        world.store.rollback(second).await.unwrap();
        world.other.execute(sqlx::raw_sql("DELETE FROM processed_messages")).await.unwrap();
    }
}

#[tokio::test]
async fn a_handler_cannot_write_behind_a_transaction_that_it_has_ended() {
    let Some(mut world) = one_connection().await else { return };
    for abuse in ["ROLLBACK", "ROLLBACK; BEGIN", "ROLLBACK; START TRANSACTION ISOLATION LEVEL SERIALIZABLE", "COMMIT"] {
        let mut txn = world.claimed(abuse).await;
        raw(&mut txn, abuse).await;
        let text = format!("INSERT INTO {}.effects VALUES ('behind')", world.schema);
        let refused = handler_connection(&mut txn).execute(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap_err();
        assert_eq!(refused.as_database_error().unwrap().code().unwrap(), "25006", "{abuse}");
        let _ = world.store.rollback(txn).await.unwrap();
    }
    assert_eq!(world.effects().await, 0);
}

/// The next transaction of the chain can write, but idem does not commit it.
#[tokio::test]
async fn a_chained_transaction_is_not_the_one_that_made_the_claim() {
    let Some(mut world) = one_connection().await else { return };
    let mut txn = world.claimed("chained").await;
    raw(&mut txn, "ROLLBACK AND CHAIN").await;
    let text = format!("INSERT INTO {}.effects VALUES ('behind')", world.schema);
    handler_connection(&mut txn).execute(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
    let committed = world.store.commit(txn).await;
    assert!(matches!(committed, CommitResult::RolledBack), "{committed:?}");
    assert_eq!((world.effects().await, world.claims().await), (0, 0));
}

#[tokio::test]
async fn a_handler_cannot_make_its_commit_less_durable() {
    let Some(mut world) = one_connection().await else { return };
    let text = "CREATE TABLE levels (level text);
         CREATE FUNCTION note_level() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             EXECUTE format('INSERT INTO %I.levels VALUES ($1)', TG_TABLE_SCHEMA)
             USING current_setting('synchronous_commit'); RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER note_level AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION note_level()";
    world.other.execute(sqlx::raw_sql(text)).await.unwrap();
    for how in ["SET LOCAL synchronous_commit = off", "SET synchronous_commit = off"] {
        let mut txn = world.claimed(how).await;
        crate::world::effect(&world.schema, handler_connection(&mut txn)).await;
        raw(&mut txn, how).await;
        assert!(matches!(world.store.commit(txn).await, CommitResult::Done));
    }
    assert_eq!(world.number("SELECT count(*) FROM levels WHERE level = 'on'").await, 2);
}

#[tokio::test]
async fn idle_connections_of_both_kinds_keep_to_the_number_that_was_given() {
    let Some(mut world) = world().await else { return };
    let name = crate::world::fresh("idem_bound");
    let url = format!("{}{}application_name={name}", world.url, if world.url.contains('?') { '&' } else { '?' });
    world.store = idem_core::Postgres::options(&url).schema(&world.schema).connections(3).connect().await.unwrap();
    let asked = format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}'");
    for round in 0..3 {
        // One of the three is never lent.
        let mut txns = Vec::new();
        for n in 0..2 {
            txns.push(world.claimed(&format!("{round} {n}")).await);
        }
        let pings = (0..3).map(|_| {
            let store = world.store.clone();
            tokio::spawn(async move { store.ping().await })
        });
        let pings: Vec<_> = pings.collect();
        for txn in txns {
            world.store.rollback(txn).await.unwrap();
        }
        for ping in pings {
            ping.await.unwrap().unwrap();
        }
        // A backend needs some time to exit.
        let settled = async {
            while sqlx::query_scalar::<_, i64>(AssertSqlSafe(asked.clone())).fetch_one(&mut world.other).await.unwrap()
                > 3
            {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), settled).await.unwrap();
    }
}

/// The last statement of a session, and when it began.
async fn last_statement(other: &mut PgConnection, pid: i32) -> String {
    let asked = "SELECT concat(query_start, ' ', query) FROM pg_stat_activity WHERE pid = $1";
    sqlx::query_scalar(asked).bind(pid).fetch_one(other).await.unwrap()
}

#[tokio::test]
async fn no_handler_ever_has_a_connection_of_idems_own() {
    let Some(mut world) = one_connection().await else { return };
    let mut first = world.claimed("first").await;
    let pid = backend(handler_connection(&mut first)).await;
    world.store.rollback(first).await.unwrap();
    for n in 0..3 {
        // If both uses shared their idle connections, the ping would take this one and return it.
        let before = last_statement(&mut world.other, pid).await;
        world.store.ping().await.unwrap();
        assert_eq!(last_statement(&mut world.other, pid).await, before);
        let mut txn = world.claimed(&n.to_string()).await;
        assert_eq!(backend(handler_connection(&mut txn)).await, pid);
        world.store.rollback(txn).await.unwrap();
    }
}

/// Databases of long ago have them. The key and the fingerprint contain what they read otherwise.
#[tokio::test]
async fn a_claim_is_found_again_however_the_database_reads_and_writes_bytes() {
    let Some(world) = world().await else { return };
    let odd = [0x5c, 0x65, 0x27, 0x00, 0xff, 0x80];
    let identity = Identity {
        handler: world.handler,
        key: Key::of("e2\\x27").unwrap(),
        fingerprint: Fingerprint::of(odd.as_slice()),
    };
    for (setting, value) in [("standard_conforming_strings", "off"), ("bytea_output", "escape")] {
        let store = Postgres::options(world.url_with(setting, value)).schema(&world.schema).connect().await.unwrap();
        store.ping().await.unwrap();
        let (txn, claimed) = store.begin_first(DEADLINE, Some(&identity)).await.unwrap();
        assert!(claimed.is_new(), "{setting}: {claimed:?}");
        committed(store.commit(txn).await);
        // By a statement with bound values, as a batch does; by a text, as a delivery does.
        let found = [
            {
                let mut txn = world.store.begin(DEADLINE).await.unwrap();
                let found = store.existing_claims(&mut txn, &[&identity], true).await.unwrap();
                world.store.rollback(txn).await.unwrap();
                found[0]
            },
            {
                let claim = store.begin_first(DEADLINE, Some(&identity)).await;
                let (txn, claimed) = claim.unwrap();
                store.rollback(txn).await.unwrap();
                let Claimed::Found(found) = claimed else { panic!("{setting}: {claimed:?}") };
                found
            },
        ];
        for found in found {
            assert_eq!(found.map(|found| found.fingerprint), Some(identity.fingerprint), "{setting}");
        }
        sqlx::query(AssertSqlSafe(format!("DELETE FROM {}.processed_messages", world.schema)))
            .execute(&mut PgConnection::connect(&world.url).await.unwrap())
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_database_that_answers_but_cannot_be_written_is_not_well() {
    let Some(mut world) = world().await else { return };
    world.store.ping().await.unwrap();
    let run = |sql: &'static str| sqlx::raw_sql(sql);
    world.other.execute(run("ALTER TABLE processed_messages RENAME TO elsewhere")).await.unwrap();
    assert!(matches!(world.store.ping().await, Err(StoreError::Unavailable(_))));
    world.other.execute(run("ALTER TABLE elsewhere RENAME TO processed_messages")).await.unwrap();
    world.store.ping().await.unwrap();
    assert_eq!(world.claims().await, 0, "it leaves nothing");
}

/// As on a hot standby, or a server that is read-only for another reason: every query is answered, and no claim is made.
#[tokio::test]
async fn a_database_that_can_only_be_read_is_not_well() {
    let Some(mut world) = world().await else { return };
    let run = |sql: &'static str| sqlx::raw_sql(sql);
    world
        .other
        .execute(run("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE EXCEPTION 'cannot execute INSERT' USING ERRCODE = 'read_only_sql_transaction'; END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON processed_messages FOR EACH STATEMENT EXECUTE FUNCTION refuse()"))
        .await
        .unwrap();
    assert_eq!(world.claims().await, 0, "it can be read");
    assert!(matches!(world.store.ping().await, Err(StoreError::Unavailable(_))));
    world.other.execute(run("DROP TRIGGER refuse ON processed_messages")).await.unwrap();
    world.store.ping().await.unwrap();
}

/// Each handler prepares a statement of the same name, and does not deallocate it.
#[tokio::test]
async fn a_statement_that_was_prepared_by_sql_closes_the_session_in_which_the_next_one_fails() {
    let Some(world) = one_connection().await else { return };
    for n in 0..3 {
        let prepare = || sqlx::raw_sql("PREPARE payment AS SELECT 1");
        let mut first = world.claimed(&format!("first {n}")).await;
        handler_connection(&mut first).execute(prepare()).await.unwrap();
        assert!(matches!(world.store.commit(first).await, CommitResult::Done));
        let mut second = world.claimed(&format!("second {n}")).await;
        let error = handler_connection(&mut second).execute(prepare()).await.unwrap_err();
        assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("42P05"));
        let class = world.store.classify_error(Some(&mut second), &error);
        assert_eq!(class, ErrorClass::Outdated, "it runs again at once, and no attempt is recorded");
        world.store.rollback(second).await.unwrap();
    }
}
