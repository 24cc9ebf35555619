//! The session of one of idem's own statements that the server refuses.

use idem_core::store::{ClaimState, Transactions};
use sqlx::Executor;

use crate::sessions::one_connection;
use crate::world::{DEADLINE, backend, handler_connection, world};

/// Refuses each claim whose key is a code, with that code.
const REFUSE: &str = "
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION 'refused by a test' USING ERRCODE = convert_from(NEW.key, 'UTF8'); END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON processed_messages FOR EACH ROW WHEN (NEW.handler_id <> 0)
        EXECUTE FUNCTION refuse()";

/// A handler may have brought its session into a state in which idem's statements fail. Other transactions cause these
/// four: lock timeout, lost race, deadlock, and a key that another one has inserted.
#[tokio::test]
async fn a_session_is_kept_after_a_refusal_that_others_caused_and_closed_after_any_other() {
    let Some(mut world) = one_connection().await else { return };
    world.other.execute(sqlx::raw_sql(REFUSE)).await.unwrap();
    let (kept, closed) = (
        ["55P03", "40001", "40P01", "23505"],
        ["23514", "22001", "25006", "42501", "53100", "54000", "57014", "P0001"],
    );
    for (codes, is_kept) in [(&kept[..], true), (&closed[..], false)] {
        for code in codes {
            let mut txn = world.store.begin(DEADLINE).await.unwrap();
            let session = backend(handler_connection(&mut txn)).await;
            world.store.claim(&mut txn, &[&world.identity(code)], ClaimState::Processed).await.unwrap_err();
            let _ = world.store.rollback(txn).await;
            let mut next = world.store.begin(DEADLINE).await.unwrap();
            assert_eq!(backend(handler_connection(&mut next)).await == session, is_kept, "{code}");
            world.store.rollback(next).await.unwrap();
        }
    }
}

/// A migration outdates all sessions at once, and each would refuse one statement of idem's own.
#[tokio::test]
async fn no_idle_session_is_used_behind_an_error_that_says_that_a_session_is_outdated() {
    let Some(mut world) = world().await else { return };
    let refuse = REFUSE.replace("refused by a test", "cache lookup failed for type 7");
    world.other.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(refuse))).await.unwrap();
    let mut txns = [world.store.begin(DEADLINE).await.unwrap(), world.store.begin(DEADLINE).await.unwrap()];
    let mut idle = [0, 0];
    for (txn, backend_of) in txns.iter_mut().zip(&mut idle) {
        *backend_of = backend(handler_connection(txn)).await;
    }
    for txn in txns {
        world.store.rollback(txn).await.unwrap();
    }
    let mut txn = world.store.begin(DEADLINE).await.unwrap();
    world.store.claim(&mut txn, &[&world.identity("XX000")], ClaimState::Processed).await.unwrap_err();
    drop(txn);
    let mut next = world.store.begin(DEADLINE).await.unwrap();
    assert!(!idle.contains(&backend(handler_connection(&mut next)).await));
    world.store.rollback(next).await.unwrap();
}
