//! COMMIT without a reply, and transactions whose end was not observed.

use std::time::Duration;

use idem::store::{ClaimState, Claims, Fate, HasConnection, Identity, Transactions};
use idem::{Fingerprint, Key, Outcome, Postgres};
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
    assert_eq!(world.effects("unanswered").await, [1], "one effect, and no attempt was charged");
    assert_eq!(world.stage.attempts("unanswered"), [1, 1], "the handler was called two times");
    worker.stop().await.unwrap();
    world.end().await;
}

/// A worker queries the fate of a transaction that a server crash has cut off. The server has forgotten it, and given
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
        let claim = store.begin_with_claim(Duration::from_secs(30), &identity, ClaimState::Processed).await;
        claim.unwrap().0
    };
    let mut given_again = 0;
    // The log is also flushed when its buffers are full, or by another transaction's commit.
    for id in ["one", "two", "three", "four", "five"] {
        let txn = cut_off(id).await;
        let ticket = store.ticket(&txn).unwrap();
        server.kill().unwrap();
        drop(txn);
        server.start_again().unwrap();
        let mut other = PgConnection::connect(server.url()).await.unwrap();
        for n in 0..10 {
            sqlx::query("INSERT INTO others VALUES ($1)").bind(n).execute(&mut other).await.unwrap();
        }
        let status: Option<String> = sqlx::query_scalar("SELECT pg_xact_status($1::xid8)")
            .bind(&ticket.number)
            .fetch_one(&mut other)
            .await
            .unwrap();
        given_again += u32::from(status.as_deref() == Some("committed"));
        let fate = loop {
            // Its connections ended with the server.
            if let Ok(fate) = store.fate(&ticket).await {
                break fate;
            }
        };
        assert_eq!(fate, Fate::RolledBack, "{ticket:?} is {status:?}");
    }
    assert!(given_again > 0, "no number was given again");
}

/// Without a claim, the run of the server decides what the number of a transaction proves. It is the run in which the
/// transaction began, although the statistics were reset after the login of its connection. A crash of one process of the
/// server begins another run: the server goes on, and knows the number, but may have given it to two transactions.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_of_one_process_of_a_server_begins_another_run_and_an_earlier_reset_does_not() {
    if variable("DATABASE_URL").is_none() {
        return;
    }
    let server = idem_services::Postgres::start().unwrap();
    if server.pid().is_none() {
        assert!(std::env::var_os("CI").is_none(), "the server runs in a container, and this is CI");
        eprintln!("skipped: the server runs in a container, so none of its processes can be killed");
        return;
    }
    let world = World::at(server.url()).await;
    let store = world.store().await;
    let timeout = Duration::from_secs(30);
    store.rollback(store.begin_guarded(timeout).await.unwrap()).await.unwrap();
    let mut victim = PgConnection::connect(server.url()).await.unwrap();
    let mut witness = PgConnection::connect(server.url()).await.unwrap();
    victim.execute("SELECT pg_stat_reset_shared('bgwriter')").await.unwrap();

    let mut txn = store.begin_guarded(timeout).await.unwrap();
    let ticket = store.ticket(&txn).unwrap();
    let handler = <Postgres as HasConnection<PgConnection>>::connection(&mut txn);
    // A commit that has written something is flushed to the log.
    handler.execute(world.stage.sql("INSERT INTO {schema}.business VALUES (1)")).await.unwrap();
    handler.execute("COMMIT").await.unwrap();
    drop(txn);
    assert_eq!(store.fate(&ticket).await.unwrap(), Fate::Committed);

    let started = "SELECT pg_postmaster_start_time()::text";
    let before: String = sqlx::query_scalar(started).fetch_one(&mut witness).await.unwrap();
    let process: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut victim).await.unwrap();
    let killed = std::process::Command::new("kill").args(["-KILL", &process.to_string()]).status().unwrap();
    assert!(killed.success());
    // The server ends all other processes before it recovers.
    while witness.execute("SELECT 1").await.is_ok() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let fate = loop {
        if let Ok(fate) = store.fate(&ticket).await {
            break fate;
        }
    };
    let mut other = PgConnection::connect(server.url()).await.unwrap();
    let after: String = sqlx::query_scalar(started).fetch_one(&mut other).await.unwrap();
    let status = sqlx::query_scalar("SELECT pg_xact_status($1::xid8)").bind(&ticket.number);
    let status: Option<String> = status.fetch_one(&mut other).await.unwrap();
    assert_eq!((before, status.as_deref()), (after, Some("committed")));
    assert_eq!(fate, Fate::RolledBack);
}
