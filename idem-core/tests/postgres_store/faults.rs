//! How server errors are classified.

use std::time::Duration;

use idem_core::store::postgres::Txn;
use idem_core::store::{
    ClaimState, CommitResult, FetchFor, FetchLimit, InboxRows, NewRow, RowKind, StoreError, Transactions,
};
use idem_core::{Delivery, Reason};
use sqlx::{AssertSqlSafe, Executor};

use crate::world::{DEADLINE, LEASE, World, world};

/// Runs `does` before each row inserted into this table, except for the row of the writability check.
async fn on_insert(world: &mut World, table: &str, does: &str) {
    let text = format!(
        "CREATE OR REPLACE FUNCTION answers() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {does}; RETURN NEW; END $$;
         CREATE OR REPLACE TRIGGER answers BEFORE INSERT ON {table}
             FOR EACH ROW WHEN (NEW.handler_id <> 0) EXECUTE FUNCTION answers()"
    );
    world.other.execute(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
}

fn raises(code: &str) -> String {
    format!("RAISE EXCEPTION 'an answer' USING ERRCODE = '{code}'")
}

/// Makes a claim and stores its row.
async fn store(world: &World, key: &str, handler_timeout: Duration) -> Result<Txn, StoreError> {
    let (identity, delivery) = (world.identity(key), Delivery::new("orders", key.as_bytes().to_vec()));
    let mut txn = world.store.begin(handler_timeout).await?;
    world.store.claim(&mut txn, &[&identity], ClaimState::Waiting).await?;
    let row = NewRow::new(&identity, &delivery, Ok(Duration::ZERO));
    world.store.insert(&mut txn, &[row]).await?;
    Ok(txn)
}

fn whose(fault: &StoreError) -> &'static str {
    match fault {
        StoreError::LockTimeout => "another transaction's",
        StoreError::Serialization(_) => "a race's",
        StoreError::Message(_) => "the message's",
        StoreError::ConnectionLost(_) => "the connection's",
        StoreError::Unavailable(_) => "the database's",
        _ => "a new kind",
    }
}

/// Otherwise the claim would be committed and the delivery acked, and the message would be nowhere.
#[tokio::test]
async fn a_row_that_a_trigger_keeps_out_silently_is_the_fault_of_its_message() {
    let Some(mut world) = world().await else { return };
    on_insert(&mut world, "inbox_messages", "IF NEW.key = 'lost'::bytea THEN RETURN NULL; END IF").await;
    drop(store(&world, "kept", DEADLINE).await.unwrap());
    let refused = store(&world, "lost", DEADLINE).await.unwrap_err();
    assert_eq!(whose(&refused), "the message's", "{refused}");

    let identities = ["one", "lost"].map(|key| world.identity(key));
    let delivery = Delivery::new("orders", b"both".to_vec());
    let row = |identity| NewRow::new(identity, &delivery, Ok(Duration::ZERO));
    let rows: Vec<_> = identities.iter().map(row).collect();
    let mut txn = world.store.begin(DEADLINE).await.unwrap();
    let refused = world.store.insert(&mut txn, &rows).await.unwrap_err();
    assert_eq!(whose(&refused), "the message's", "{refused}");
}

const CODES: &[(&str, &str)] = &[
    ("22001", "the message's"),
    ("22P05", "the message's"),
    ("23505", "the message's"),
    ("23514", "the message's"),
    ("23P01", "the message's"),
    ("54000", "the message's"),
    ("P0001", "the message's"),
    ("25006", "the database's"),
    ("42501", "the database's"),
    ("42P01", "the database's"),
    ("53100", "the database's"),
    ("53200", "the database's"),
    ("XX001", "the database's"),
    ("08006", "the connection's"),
    ("57P01", "the connection's"),
    ("40001", "a race's"),
    ("55P03", "another transaction's"),
];

#[tokio::test]
async fn each_error_of_a_claim_has_a_cause_and_is_named_with_its_code() {
    let Some(mut world) = world().await else { return };
    for (n, (code, fault)) in CODES.iter().enumerate() {
        on_insert(&mut world, "processed_messages", &raises(code)).await;
        let (one, more) = (world.identity(&format!("{n} a")), world.identity(&format!("{n} b")));
        let direct = world.store.begin_first(DEADLINE, Some(&one)).await.unwrap_err();
        let mut txn = world.store.begin(DEADLINE).await.unwrap();
        let many = world.store.claim(&mut txn, &[&one, &more], ClaimState::Processed).await.unwrap_err();
        assert_eq!((whose(&direct), whose(&many)), (*fault, *fault), "{code}");
        if let StoreError::Message(error) | StoreError::Unavailable(error) = &direct {
            assert!(error.to_string().starts_with(&format!("{code}: an answer")), "{error}");
        }
        drop(txn);
        world.store.ping().await.unwrap();
    }
}

#[tokio::test]
async fn each_error_of_a_payload_has_a_cause() {
    let Some(mut world) = world().await else { return };
    for (n, (code, fault)) in CODES.iter().enumerate() {
        on_insert(&mut world, "inbox_messages", &raises(code)).await;
        let answer = store(&world, &n.to_string(), DEADLINE).await.unwrap_err();
        assert_eq!(whose(&answer), *fault, "{code}");
    }
}

#[tokio::test]
async fn a_payload_whose_insert_takes_too_long_is_the_messages_fault_and_a_claim_is_not() {
    let Some(mut world) = world().await else { return };
    let short = Duration::from_millis(300);
    on_insert(&mut world, "inbox_messages", "PERFORM pg_sleep(60)").await;
    assert_eq!(whose(&store(&world, "slow payload", short).await.unwrap_err()), "the message's");
    world.other.execute(sqlx::raw_sql("DROP TRIGGER answers ON inbox_messages")).await.unwrap();
    on_insert(&mut world, "processed_messages", "PERFORM pg_sleep(60)").await;
    assert_eq!(whose(&store(&world, "slow claim", short).await.unwrap_err()), "the connection's");
}

#[tokio::test]
async fn a_constraint_that_is_deferred_to_the_commit_of_a_row_refuses_it() {
    let Some(mut world) = world().await else { return };
    let deferred = format!(
        "CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {}; END $$;
         CREATE CONSTRAINT TRIGGER late AFTER INSERT ON inbox_messages DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION late()",
        raises("23514")
    );
    world.other.execute(sqlx::raw_sql(AssertSqlSafe(deferred))).await.unwrap();
    let txn = store(&world, "late", DEADLINE).await.unwrap();
    let answer = world.store.commit(txn).await;
    assert!(matches!(answer, CommitResult::Refused(_)), "{answer:?}");
}

/// An error that is not about a message is the database's fault: there is no message to hold instead.
#[tokio::test]
async fn an_answer_to_a_statement_about_no_message_is_the_databases_fault() {
    let Some(mut world) = world().await else { return };
    world.schedule("a", Ok(Duration::ZERO)).await;
    world.schedule("dead", Err(Reason::Permanent)).await;
    world.other.execute("ALTER TABLE inbox_messages ADD CONSTRAINT none CHECK (locked_by IS NULL)").await.unwrap();
    let (handlers, token) = ([FetchFor::new(world.handler, LEASE)], uuid::Uuid::new_v4());
    let fetched = world.store.fetch(&handlers, FetchLimit::rows(RowKind::Ordinary, 1), token).await;
    assert_eq!(whose(&fetched.unwrap_err()), "the database's");
}
