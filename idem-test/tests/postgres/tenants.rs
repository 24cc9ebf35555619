//! Handlers of a batch that set a tenant for row-level security.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::Duration;

use idem_core::{BoxError, Delivery, Handler, Key, KeyError, State, Worker};
use idem_test::conformance::store::{Setup, World};
use idem_test::{Broker, Publication};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, PgConnection};

use crate::world::PostgresWorld;

#[derive(Serialize, Deserialize)]
struct Payment {
    id: String,
    /// `None`: the handler forgets to set it.
    tenant: Option<String>,
}

/// The table of payments.
#[derive(Clone)]
struct Payments(String);

/// Writes the tenant that it sees, and the transaction.
struct Pay;

impl Handler for Pay {
    const NAME: &'static str = "pay";

    type Message = Payment;
    type Input = Payment;
    type Params = State<Payments>;
    type Connection = PgConnection;

    fn key(payment: &Payment, _: &Delivery) -> Result<Key, KeyError> {
        Key::of(&payment.id)
    }

    async fn handle(payment: Payment, State(table): State<Payments>, tx: &mut PgConnection) -> Result<(), BoxError> {
        if let Some(tenant) = payment.tenant {
            sqlx::query("SELECT set_config('app.tenant', $1, true)").bind(tenant).execute(&mut *tx).await?;
        }
        let insert = format!(
            "INSERT INTO {} SELECT $1, coalesce(current_setting('app.tenant', true), ''), pg_current_xact_id()::text",
            table.0
        );
        sqlx::query(AssertSqlSafe(insert)).bind(payment.id).execute(tx).await?;
        Ok(())
    }
}

/// They run in the order of their keys, each one that forgets behind one that sets its own.
#[tokio::test]
async fn a_handler_that_forgets_its_tenant_sees_none_of_its_batch() {
    let Some(world) = PostgresWorld::make().await else { return };
    let table = world.name("payments");
    world.run(&format!("CREATE TABLE {table} (id text, tenant text, xid text)")).await;
    let store = world.options(&world.url, Setup::default()).reset_between_messages().connect().await.unwrap();
    let (broker, count) = (Broker::new(), 6);
    let queue = broker.queue("payments");
    for n in 0..count {
        let tenant = (n % 2 == 0).then(|| format!("tenant {n}"));
        broker.publish("payments", Publication::json(&Payment { id: n.to_string(), tenant }).unwrap());
    }
    let worker = Worker::new("billing", store, queue.clone()).state(Payments(table.clone())).handler::<Pay>();
    // It waits until the batch is full.
    let worker = worker.batch(count).linger(Duration::from_secs(20)).concurrency(1);
    let processed = async {
        while queue.counts().acks < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), worker.run_until(processed)).await.unwrap().unwrap();
    let number = async |sql: &str| world.number(&format!("SELECT count({sql}")).await;
    assert_eq!(number(&format!("DISTINCT xid) FROM {table}")).await, 1, "they ran in one transaction");
    let own = format!("*) FROM {table} WHERE id::int % 2 = 0 AND tenant = 'tenant ' || id");
    let none = format!("*) FROM {table} WHERE id::int % 2 = 1 AND tenant = ''");
    assert_eq!((number(&own).await, number(&none).await), (3, 3));
}
