//! Handlers of a batch that end its transaction, and let the handlers after them write outside of it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::Duration;

use idem_conformance::store::World;
use idem_core::operator::{Filter, Operator, Page};
use idem_core::{BoxError, Handler, Postgres, Reason, State, Worker};
use idem_test::{Broker, Publication};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, PgConnection};

#[derive(Serialize, Deserialize)]
struct Payment {
    id: String,
    /// The statements that its handler runs behind its effect.
    sql: String,
}

/// The table of effects.
#[derive(Clone)]
struct Effects(String);

/// Writes one effect, runs the SQL of the message, and ignores its error, as a careless handler does.
struct Pay;

impl Handler for Pay {
    const NAME: &'static str = "pay";

    type Params = State<Effects>;

    idem_conformance::keyed_by_id!(Payment, PgConnection);

    async fn handle(payment: Payment, State(table): State<Effects>, tx: &mut PgConnection) -> Result<(), BoxError> {
        let insert = format!("INSERT INTO {} VALUES ($1)", table.0);
        sqlx::query(AssertSqlSafe(insert)).bind(payment.id).execute(&mut *tx).await?;
        let _ = sqlx::raw_sql(AssertSqlSafe(payment.sql)).execute(tx).await;
        Ok(())
    }
}

/// The writes of the handlers after it would be committed one by one, and again when their messages run again.
pub(crate) async fn one_makes_its_session_writable<W: World>(world: &W, store: &Postgres) {
    let writable = "ROLLBACK; SET default_transaction_read_only = off";
    let messages = [("a", ""), ("culprit", writable), ("b", ""), ("c", "")];
    harm_no_other(world, store, &messages, &[("culprit", Reason::RolledBack)]).await;
}

/// The trigger on the claims refuses no COMMIT of a transaction that has none.
pub(crate) async fn one_begins_another_transaction_with<W: World>(world: &W, store: &Postgres, other: &str) {
    let messages = [("a", ""), ("begins", other), ("b", ""), ("commits", "COMMIT"), ("c", "")];
    harm_no_other(world, store, &messages, &[("begins", Reason::RolledBack), ("commits", Reason::Committed)]).await;
}

/// Runs a batch of messages, each with the SQL of its handler. The named ones become dead letters, and each of the others
/// has one effect.
async fn harm_no_other<W: World>(world: &W, store: &Postgres, messages: &[(&str, &str)], dead: &[(&str, Reason)]) {
    let table = world.name("effects");
    world.run(&format!("CREATE TABLE {table} (id text)")).await;
    let (broker, count) = (Broker::new(), messages.len());
    let queue = broker.queue("payments");
    for (id, sql) in messages {
        let payment = Payment { id: (*id).to_owned(), sql: (*sql).to_owned() };
        broker.publish("payments", Publication::json(&payment).unwrap());
    }
    let worker = Worker::new("billing", store.clone(), queue.clone()).state(Effects(table.clone())).handler::<Pay>();
    // It waits until the batch is full.
    let worker = worker.batch(count).linger(Duration::from_secs(20)).concurrency(1);
    let settled = async {
        while queue.counts().acks < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), worker.run_until(settled)).await.unwrap().unwrap();
    let rows = Operator::new(store).consumer("billing").list(&Filter::new(), Page::default()).await.unwrap().rows;
    let mut found: Vec<_> = rows.iter().map(|row| (row.identity.key.to_string(), row.reason)).collect();
    found.sort_by(|one, next| one.0.cmp(&next.0));
    let expected: Vec<_> = dead.iter().map(|(id, reason)| ((*id).to_owned(), Some(*reason))).collect();
    assert_eq!(found, expected);
    for (id, _) in messages.iter().filter(|(id, _)| !dead.iter().any(|(dead, _)| dead == id)) {
        let effects = world.number(&format!("SELECT count(*) FROM {table} WHERE id = '{id}'")).await;
        assert_eq!(effects, 1, "{id} of {messages:?}");
    }
}
