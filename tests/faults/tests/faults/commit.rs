//! COMMIT without a reply, and transactions whose end was not observed.

use std::time::Duration;

use idem::store::{Consumers, Identity, Transactions, TxnOutcome};
use idem::{Fingerprint, Key, Outcome};
use idem_faults::{Act, Order, World, variable};
use sqlx::{Connection, Executor, PgConnection};

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_without_an_answer_is_asked_again() {
    let Some(world) = World::new().await else { return };
    // The first COMMIT with an effect to write ends its own connection. A sequence also counts what is rolled back.
    let trigger = "CREATE SEQUENCE {schema}.commits;
        CREATE FUNCTION {schema}.die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('{schema}.commits') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
            RETURN NULL;
        END $$;
        CREATE CONSTRAINT TRIGGER die AFTER INSERT ON {schema}.effects DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION {schema}.die()";
    world.pool.execute(sqlx::raw_sql(world.stage.sql(trigger))).await.unwrap();
    let store = world.store().await;
    let worker = world.start(&store, world.broker.queue("orders"), |worker| worker);
    world.publish(&Order::new("unanswered", Act::Write));
    assert_eq!(world.journal.end_of("unanswered").await, Outcome::Processed);
    assert_eq!(world.effects("unanswered").await, [1], "one effect, and no attempt was recorded");
    assert_eq!(world.stage.attempts("unanswered"), [1, 1], "the handler was called two times");
    worker.stop().await.unwrap();
    world.end().await;
}

/// A worker queries the outcome of a transaction that a server crash has cut off. The server has forgotten it, and given
/// its number to another transaction, which was committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_a_crashed_server_gives_again_does_not_make_a_dead_letter() {
    if variable("DATABASE_URL").is_none() {
        return;
    }
    let mut server = idem_services::Postgres::start().unwrap();
    let mut other = PgConnection::connect(server.url()).await.unwrap();
    // Nothing of an open transaction is flushed to the log in the background.
    let lazy = "ALTER SYSTEM SET wal_writer_delay = '10s'; SELECT pg_reload_conf(); CREATE TABLE others (n int)";
    for statement in lazy.split(';') {
        other.execute(statement).await.unwrap();
    }
    let world = World::at(server.url()).await;
    let store = world.store().await;
    let handler = store.register("billing", &["order_paid"]).await.unwrap()[0];
    let cut_off = async |id: &str| {
        let identity = Identity { handler, key: Key::of(id).unwrap(), fingerprint: Fingerprint::of(id.as_bytes()) };
        let claim = store.begin_first(Duration::from_secs(30), Some(&identity)).await;
        claim.unwrap().0
    };
    let mut given_again = 0;
    // The log is also flushed when its buffers are full, or by another transaction's commit.
    for id in ["one", "two", "three", "four", "five"] {
        let txn = cut_off(id).await;
        let txn_handle = store.txn_handle(&txn).unwrap();
        server.kill().unwrap();
        drop(txn);
        server.start_again().unwrap();
        let mut other = PgConnection::connect(server.url()).await.unwrap();
        for n in 0..10 {
            sqlx::query("INSERT INTO others VALUES ($1)").bind(n).execute(&mut other).await.unwrap();
        }
        let status: Option<String> = sqlx::query_scalar("SELECT pg_xact_status($1::xid8)")
            .bind(&txn_handle.number)
            .fetch_one(&mut other)
            .await
            .unwrap();
        given_again += u32::from(status.as_deref() == Some("committed"));
        let txn_outcome = loop {
            // Its connections ended with the server.
            if let Ok(txn_outcome) = store.txn_outcome(&txn_handle).await {
                break txn_outcome;
            }
        };
        assert_eq!(txn_outcome, TxnOutcome::RolledBack, "{txn_handle:?} is {status:?}");
    }
    assert!(given_again > 0, "no number was given again");
}
