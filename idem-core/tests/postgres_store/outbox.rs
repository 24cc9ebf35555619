//! Staged messages, beside what a handler does to its session.

use futures_util::FutureExt as _;
use idem_core::store::{
    CommitResult, LeaseAnswer, LeaseRequest, OutboxRows, OwnClaim, PublishFailure, RowRef, StoreError, Transactions,
};
use idem_core::{Error, Fingerprint, Key, Outgoing, StagedMessage};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use uuid::Uuid;

use crate::proxy::Proxy;
use crate::world::{LEASE, World, committed, raw, world, world_with};

fn message(text: &str) -> StagedMessage {
    StagedMessage::new(Uuid::new_v4(), Outgoing::new("orders", text.to_owned()))
}

fn both() -> [StagedMessage; 2] {
    [message("small"), message(&"large".repeat(5000))]
}

/// Runs SQL as a handler, stages a message, and commits.
async fn stage_after(world: &World, key: &str, sql: &'static str, message: StagedMessage) -> CommitResult {
    let outbox = world.store.register_outbox("billing").await.unwrap();
    let mut txn = world.claimed(key).await;
    raw(&mut txn, sql).await;
    world.store.stage(&mut txn, outbox, vec![message], Vec::new());
    world.store.commit(txn).await
}

const STAGED: &str = "SELECT count(*) FROM outbox_messages";

#[tokio::test]
async fn settings_of_the_handler_change_nothing_in_what_is_staged() {
    let Some(mut world) = world().await else { return };
    let settings = "SET LOCAL standard_conforming_strings = off; SET LOCAL backslash_quote = off; \
                    SET LOCAL bytea_output = 'escape'; SET LOCAL search_path = pg_temp";
    // A connection that has staged a message inserts the next one by a prepared statement.
    for (key, staged) in ["a", "b", "c", "d"].into_iter().zip(both().into_iter().chain(both())) {
        let payload = staged.payload().to_vec();
        committed(stage_after(&world, key, settings, staged).await);
        let query = sqlx::query_scalar::<_, Vec<u8>>("SELECT payload FROM outbox_messages ORDER BY id DESC LIMIT 1");
        assert_eq!(query.fetch_one(&mut world.other).await.unwrap(), payload);
    }
}

#[tokio::test]
async fn a_role_or_a_mode_that_cannot_write_is_a_failure_of_the_handler() {
    let Some(mut world) = world().await else { return };
    for (n, sql) in ["SET LOCAL ROLE pg_monitor", "SET TRANSACTION READ ONLY"].into_iter().enumerate() {
        for (m, staged) in both().into_iter().enumerate() {
            let done = stage_after(&world, &format!("{n} {m}"), sql, staged).await;
            let CommitResult::Refused(why) = done else { panic!("{sql}, {m}: {done:?}") };
            assert!(why.to_string().contains("SET ROLE"), "{why}");
        }
    }
    assert_eq!((world.number(STAGED).await, world.claims().await), (0, 0));
}

/// The server would not answer in time, or refuse to parse it, and each try would look like a lost connection or an outage.
#[tokio::test]
async fn more_than_a_commit_can_take_is_a_failure_of_the_handler() {
    let Some(mut world) = world().await else { return };
    let half = || StagedMessage::new(Uuid::new_v4(), Outgoing::new("orders", vec![0_u8; 64 * 1024 * 1024 + 1]));
    let outbox = world.store.register_outbox("billing").await.unwrap();
    let mut txn = world.claimed("a").await;
    world.store.stage(&mut txn, outbox, vec![half(), half()], Vec::new());
    let done = world.store.commit(txn).await;
    let CommitResult::Refused(why) = done else { panic!("{done:?}") };
    assert!(why.to_string().contains("stage less"), "{why}");
    // As behind any other end, a COMMIT of the handler is found.
    let mut txn = world.claimed("b").await;
    raw(&mut txn, "COMMIT").await;
    world.store.stage(&mut txn, outbox, vec![half(), half()], Vec::new());
    let done = world.store.commit(txn).await;
    assert!(matches!(done, CommitResult::CommittedEarly(_)), "{done:?}");
    assert_eq!((world.number(STAGED).await, world.claims().await), (0, 1));
}

#[tokio::test]
async fn a_table_that_is_gone_is_no_failure_of_the_handler() {
    let Some(mut world) = world().await else { return };
    let outbox = world.store.register_outbox("billing").await.unwrap();
    sqlx::query("ALTER TABLE outbox_messages RENAME TO gone").execute(&mut world.other).await.unwrap();
    for (key, staged) in ["a", "b"].into_iter().zip(both()) {
        let mut txn = world.claimed(key).await;
        world.store.stage(&mut txn, outbox, vec![staged], Vec::new());
        let done = world.store.commit(txn).await;
        assert!(matches!(done, CommitResult::Unknown(_)), "{done:?}");
    }
    assert_eq!(world.claims().await, 0);
    sqlx::query("ALTER TABLE gone RENAME TO outbox_messages").execute(&mut world.other).await.unwrap();
    committed(stage_after(&world, "a", "SELECT 1", message("a")).await);
}

/// A connection that opens meanwhile stages without the prepared statement.
#[tokio::test]
async fn a_locked_outbox_keeps_no_connection_from_opening() {
    let Some(mut world) = world().await else { return };
    sqlx::raw_sql("BEGIN; LOCK TABLE outbox_messages").execute(&mut world.other).await.unwrap();
    // Held at the same time, so that one of their connections is new.
    let (one, other) = (world.claimed("one").await, world.claimed("other").await);
    sqlx::raw_sql("COMMIT").execute(&mut world.other).await.unwrap();
    let outbox = world.store.register_outbox("billing").await.unwrap();
    for (mut txn, staged) in [one, other].into_iter().zip(both()) {
        world.store.stage(&mut txn, outbox, vec![staged, message("and another")], Vec::new());
        committed(world.store.commit(txn).await);
    }
    assert_eq!(world.number("SELECT count(*) FROM outbox_messages").await, 4);
}

/// Its INSERT is prepared by then.
#[tokio::test]
async fn a_connection_that_has_staged_refuses_the_same() {
    let Some(mut world) = world().await else { return };
    committed(stage_after(&world, "first", "SELECT 1", message("first")).await);
    let done = stage_after(&world, "role", "SET LOCAL ROLE pg_monitor", message("role")).await;
    let CommitResult::Refused(why) = done else { panic!("{done:?}") };
    assert!(why.to_string().contains("SET ROLE"), "{why}");
    committed(stage_after(&world, "second", "SELECT 1", message("second")).await);
    let outbox = world.store.register_outbox("billing").await.unwrap();
    sqlx::query("ALTER TABLE outbox_messages RENAME TO gone").execute(&mut world.other).await.unwrap();
    let mut txn = world.claimed("gone").await;
    world.store.stage(&mut txn, outbox, vec![message("gone")], Vec::new());
    let done = world.store.commit(txn).await;
    assert!(matches!(done, CommitResult::Unknown(_)), "{done:?}");
    assert_eq!((world.number("SELECT count(*) FROM gone").await, world.claims().await), (2, 2));
}

#[tokio::test]
async fn a_handler_that_removes_the_prepared_insert_fails_and_harms_no_later_message() {
    let Some(mut world) = world().await else { return };
    committed(stage_after(&world, "first", "SELECT 1", message("first")).await);
    let done = stage_after(&world, "removes", "DEALLOCATE idem_stage", message("removes")).await;
    let CommitResult::Refused(why) = done else { panic!("{done:?}") };
    assert!(why.to_string().contains("deallocated"), "{why}");
    assert_eq!((world.number(STAGED).await, world.claims().await), (1, 1));
    committed(stage_after(&world, "next", "SELECT 1", message("next")).await);
    assert_eq!((world.number(STAGED).await, world.claims().await), (2, 2));
}

#[tokio::test]
async fn an_application_stages_in_its_own_transaction() {
    let Some(mut world) = world().await else { return };
    let mut own = PgConnection::connect(&world.url).await.unwrap();
    let outbox = world.store.outbox("billing");
    let texts = |part: &str| [1, 2, 3].map(|n| Outgoing::new("orders", format!("{part} {n}")).key("k"));
    let mut tx = own.begin().await.unwrap();
    outbox.stage(&mut tx, texts("rolled back")).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(world.number(STAGED).await, 0);
    let mut tx = own.begin().await.unwrap();
    outbox.stage(&mut tx, texts("kept")).await.unwrap();
    outbox.stage(&mut tx, []).await.unwrap();
    assert_eq!(world.number(STAGED).await, 0, "it is not committed");
    tx.commit().await.unwrap();
    let rung = world.store.facts().notifier.listen();
    outbox.wake();
    assert!(rung.has_changed().unwrap(), "relays of this process are woken");
    let query = "SELECT convert_from(payload, 'UTF8') FROM outbox_messages ORDER BY id";
    let staged: Vec<String> = sqlx::query_scalar(query).fetch_all(&mut world.other).await.unwrap();
    assert_eq!(staged, ["kept 1", "kept 2", "kept 3"]);
    let mut tx = own.begin().await.unwrap();
    let undeliverable = outbox.stage(&mut tx, [Outgoing::new("orders", ""), Outgoing::new("a\0", "")]).await;
    let Err(Error::Config(why)) = undeliverable else { panic!("{undeliverable:?}") };
    assert!(why.contains("message 1") && why.contains("destination"), "{why}");
    assert_eq!(world.number(STAGED).await, 3);
}

#[tokio::test]
async fn an_application_claims_in_its_own_transaction() {
    let Some(mut world) = world().await else { return };
    let mut own = PgConnection::connect(&world.url).await.unwrap();
    let claim = async |own: &mut PgConnection, key: &str, text: &str| {
        let (key, fingerprint) = (Key::of(key).unwrap(), Fingerprint::of(text.as_bytes()));
        world.store.claim_key(own, "importer", "row", key, fingerprint).await.unwrap()
    };
    let mut tx = own.begin().await.unwrap();
    assert!(claim(&mut tx, "a", "1").await.is_new());
    assert_eq!(claim(&mut tx, "a", "2").await, OwnClaim::Conflict, "its own claim has another fingerprint");
    tx.rollback().await.unwrap();
    let mut tx = own.begin().await.unwrap();
    assert!(claim(&mut tx, "a", "1").await.is_new(), "it was rolled back");
    tx.commit().await.unwrap();
    for (text, expected) in [("1", OwnClaim::Duplicate), ("2", OwnClaim::Conflict)] {
        let mut tx = own.begin().await.unwrap();
        assert_eq!(claim(&mut tx, "a", text).await, expected);
        tx.rollback().await.unwrap();
    }
    // Another transaction waits for the first one.
    let mut second = PgConnection::connect(&world.url).await.unwrap();
    let mut tx = own.begin().await.unwrap();
    assert!(claim(&mut tx, "b", "1").await.is_new());
    let mut waits = second.begin().await.unwrap();
    let (claimed, ()) = tokio::join!(claim(&mut waits, "b", "1"), async {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        tx.commit().await.unwrap();
    });
    assert_eq!(claimed, OwnClaim::Duplicate);
    waits.rollback().await.unwrap();
    assert_eq!(world.claims().await, 2);
    let handlers = "SELECT count(*) FROM handlers WHERE consumer = 'importer'";
    assert_eq!(sqlx::query_scalar::<_, i64>(AssertSqlSafe(handlers)).fetch_one(&mut world.other).await.unwrap(), 1);
}

/// A request may claim again what a call that was cancelled has claimed, or another layer of it. A savepoint has a number of
/// its own.
#[tokio::test]
async fn a_claim_of_its_own_transaction_is_new_again() {
    let Some(mut world) = world().await else { return };
    let mut own = PgConnection::connect(&world.url).await.unwrap();
    let claim = async |own: &mut PgConnection, key: &str| {
        let (key, fingerprint) = (Key::of(key).unwrap(), Fingerprint::none());
        world.store.claim_key(own, "importer", "row", key, fingerprint).await.unwrap()
    };
    for (begin, key) in [("BEGIN", "a"), ("BEGIN ISOLATION LEVEL SERIALIZABLE", "b")] {
        let mut tx = own.begin_with(begin).await.unwrap();
        let mut nested = tx.begin().await.unwrap();
        assert_eq!(claim(&mut nested, key).await, OwnClaim::New);
        assert_eq!(claim(&mut nested, key).await, OwnClaim::New);
        nested.rollback().await.unwrap();
        let mut nested = tx.begin().await.unwrap();
        assert_eq!(claim(&mut nested, key).await, OwnClaim::New);
        nested.commit().await.unwrap();
        assert_eq!(claim(&mut tx, key).await, OwnClaim::New, "its savepoint has made it");
        tx.commit().await.unwrap();
        let mut tx = own.begin_with(begin).await.unwrap();
        assert_eq!(claim(&mut tx, key).await, OwnClaim::Duplicate);
        assert_eq!(claim(&mut tx, &format!("{key} other")).await, OwnClaim::New, "now it has a number");
        assert_eq!(claim(&mut tx, key).await, OwnClaim::Duplicate);
        tx.rollback().await.unwrap();
    }
    assert_eq!(world.claims().await, 2);
}

/// As behind a restore of a backup that is older than the names, while the application runs on.
#[tokio::test]
async fn an_application_registers_its_names_again_when_the_database_has_lost_them() {
    let Some(mut world) = world().await else { return };
    let mut own = PgConnection::connect(&world.url).await.unwrap();
    let outbox = world.store.outbox("shop");
    for is_known in [true, false, true] {
        let mut tx = own.begin().await.unwrap();
        let staged = outbox.stage(&mut tx, [Outgoing::new("orders", "")]).await;
        let key = Key::of("a").unwrap();
        let claim = world.store.claim_key(&mut tx, "importer", "row", key, Fingerprint::none()).await;
        if !is_known {
            for refused in [staged, claim.map(drop)] {
                let Err(error) = refused else { panic!("{refused:?}") };
                assert!(error.to_string().contains("repeat the transaction"), "{error}");
            }
            tx.rollback().await.unwrap();
            continue;
        }
        staged.unwrap();
        assert!(claim.unwrap().is_new());
        tx.commit().await.unwrap();
        let named = "SELECT count(*) FROM outbox_messages JOIN outboxes ON outboxes.id = outbox_id WHERE name = 'shop'";
        assert_eq!(world.number(named).await, 1);
        let named =
            "SELECT count(*) FROM processed_messages JOIN handlers ON handlers.id = handler_id WHERE name = 'row'";
        assert_eq!(world.number(named).await, 1);
        let lost = "DELETE FROM outbox_messages; DELETE FROM outboxes;
                    DELETE FROM processed_messages; DELETE FROM handlers";
        world.other.execute(sqlx::raw_sql(lost)).await.unwrap();
    }
}

/// What nobody would ever look for is not written: the connection may be one of another database with these tables.
#[tokio::test]
async fn a_transaction_that_does_not_know_the_name_is_refused() {
    let Some(mut world) = world().await else { return };
    let mut own = PgConnection::connect(&world.url).await.unwrap();
    let mut tx = own.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    sqlx::query(AssertSqlSafe(format!("SELECT FROM {}.effects", world.schema))).execute(&mut *tx).await.unwrap();
    let staged = world.store.outbox("shop").stage(&mut tx, [Outgoing::new("orders", "")]).await;
    let claim = world.store.claim_key(&mut tx, "importer", "row", Key::of("a").unwrap(), Fingerprint::none()).await;
    for refused in [staged, claim.map(drop)] {
        let Err(error) = refused else { panic!("{refused:?}") };
        assert!(error.to_string().contains("does not know the name"), "{error}");
    }
    tx.commit().await.unwrap();
    assert_eq!((world.number(STAGED).await, world.claims().await), (0, 0));
}

/// Whatever is written in no transaction is committed at once, also where sqlx has rolled it back.
#[tokio::test]
async fn a_connection_in_no_transaction_is_refused() {
    let Some(mut world) = world().await else { return };
    let mut own = PgConnection::connect(&world.url).await.unwrap();
    let mut tx = own.begin().await.unwrap();
    // One that has begun by its first poll is an ordinary drop.
    while tx.begin().now_or_never().is_some() {}
    let claim = world.store.claim_key(&mut tx, "importer", "row", Key::of("a").unwrap(), Fingerprint::none()).await;
    let staged = world.store.outbox("billing").stage(&mut tx, [Outgoing::new("orders", "")]).await;
    for refused in [claim.map(drop), staged] {
        assert!(matches!(&refused, Err(Error::Config(why)) if why.contains("in no transaction")), "{refused:?}");
    }
    drop(tx);
    assert_eq!((world.number(STAGED).await, world.claims().await), (0, 0));
}

/// An outbox and a handler that are called the same are not taken for each other.
#[tokio::test]
async fn the_names_of_outboxes_are_apart_from_those_of_handlers() {
    let Some(world) = world().await else { return };
    let mut own = PgConnection::connect(&world.url).await.unwrap();
    // The first outbox and the first handler have the same number.
    let mut tx = own.begin().await.unwrap();
    world.store.outbox("billing").stage(&mut tx, [Outgoing::new("orders", "")]).await.unwrap();
    committed(world.store.commit(world.claimed("a").await).await);
    let claimed =
        world.store.claim_key(&mut tx, "outbox", "billing", Key::of("a").unwrap(), Fingerprint::of(b"a")).await;
    assert!(claimed.unwrap().is_new(), "it is a message of another handler");
    tx.commit().await.unwrap();
}

/// Whether the messages are in the string of COMMIT or in front of it.
#[tokio::test]
async fn a_commit_of_messages_that_does_not_arrive_is_not_done() {
    let Some(mut world) = world().await else { return };
    let proxy = Proxy::before(&world.url).await;
    world.store = idem_core::Postgres::options(&proxy.url).schema(&world.schema).connect().await.unwrap();
    let outbox = world.store.register_outbox("billing").await.unwrap();
    for (n, staged) in both().into_iter().enumerate() {
        let mut txn = world.claimed(&format!("silent {n}")).await;
        world.store.stage(&mut txn, outbox, vec![staged], Vec::new());
        proxy.fall_silent();
        tokio::time::pause();
        let done = world.store.commit(txn).await;
        assert!(!matches!(done, CommitResult::Done), "{done:?}");
        tokio::time::resume();
        proxy.recover();
        world.store.ping().await.unwrap();
    }
}

/// If the connection is lost before the answer to COMMIT, the messages are there, as the claim is.
#[tokio::test]
async fn a_commit_without_an_answer_has_staged_what_it_has_claimed() {
    let Some(mut world) = world().await else { return };
    let proxy = Proxy::before(&world.url).await;
    world.store = idem_core::Postgres::options(&proxy.url).schema(&world.schema).connect().await.unwrap();
    let outbox = world.store.register_outbox("billing").await.unwrap();
    for (expected, staged) in (1..).zip(both()) {
        let mut txn = world.claimed(&format!("lost {expected}")).await;
        world.store.stage(&mut txn, outbox, vec![staged], Vec::new());
        proxy.lose_the_answer_to_commit();
        let done = world.store.commit(txn).await;
        assert!(matches!(done, CommitResult::Unknown(_)), "{done:?}");
        proxy.recover();
        let committed = async {
            // The server may still be committing.
            while world.claims().await < expected {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(20), committed).await.expect("it was not committed");
        assert_eq!((world.number(STAGED).await, world.claims().await), (expected, expected));
    }
}

/// An id that was given again is no obstacle to a dead letter.
#[tokio::test]
async fn a_message_with_the_id_of_a_dead_letter_is_given_up() {
    let Some(mut world) = world().await else { return };
    let (outbox, token) = (world.store.register_outbox("billing").await.unwrap(), Uuid::new_v4());
    let hold = LeaseRequest::Hold(std::time::Duration::from_secs(60));
    world.store.lease_outbox(outbox, token, hold).await.unwrap();
    for dead in 1..=2 {
        let message = Outgoing::new("orders", "").id(Uuid::from_u128(dead)).key("k");
        let mut tx = world.other.begin().await.unwrap();
        world.store.outbox("billing").stage(&mut tx, [message]).await.unwrap();
        tx.commit().await.unwrap();
        let query = "SELECT id FROM outbox_messages";
        let id: i64 = sqlx::query_scalar(query).fetch_one(&mut world.other).await.unwrap();
        let row = RowRef { id, message_id: Uuid::from_u128(dead) };
        let failure = PublishFailure { row, attempts: 1, next: None, error: "no".to_owned() };
        world.store.record_failures(outbox, token, &[failure]).await.unwrap();
        assert_eq!(world.number("SELECT count(*) FROM outbox_dead").await, i64::try_from(dead).unwrap());
        let again = "ALTER TABLE outbox_messages ALTER COLUMN id RESTART";
        sqlx::query(again).execute(&mut world.other).await.unwrap();
    }
}

/// Its statement began before the renewal, whose lease must not seem to end too late for that.
#[tokio::test]
async fn a_relay_that_waits_for_a_renewal_does_not_take_the_lease() {
    let Some(mut world) = world().await else { return };
    let outbox = world.store.register_outbox("billing").await.unwrap();
    let mut renewal = world.other.begin().await.unwrap();
    renewal.execute("SELECT FROM outboxes FOR UPDATE").await.unwrap();
    let store = world.store.clone();
    let waiting =
        tokio::spawn(async move { store.lease_outbox(outbox, Uuid::new_v4(), LeaseRequest::Hold(LEASE)).await });
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'tuple' AND relation = 'outboxes'::regclass";
    while sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut *renewal).await.unwrap() == 0 {
        assert!(!waiting.is_finished(), "it did not wait");
        tokio::task::yield_now().await;
    }
    let renew = "UPDATE outboxes SET locked_by = gen_random_uuid(), lease = interval '10 seconds',
                     locked_until = clock_timestamp() + interval '10 seconds'";
    renewal.execute(renew).await.unwrap();
    renewal.commit().await.unwrap();
    match waiting.await.unwrap() {
        // The machine is busy.
        Err(StoreError::LockTimeout) => {}
        answer => assert_eq!(answer.unwrap(), LeaseAnswer::Other),
    }
}

/// With fewer connections, a read of ten seconds would keep its own lease from being renewed.
#[tokio::test]
async fn a_relay_is_refused_on_a_store_with_fewer_than_four_connections() {
    for connections in 2..=4 {
        let Some(world) = world_with(|options| options.connections(connections)).await else { return };
        match world.store.facts().connections.add_relay(1) {
            Ok(_) => assert_eq!(connections, 4),
            Err(Error::Config(why)) => assert!(connections < 4 && why.contains("`.connections(4)`"), "{why}"),
            Err(other) => panic!("{other:?}"),
        }
    }
}
