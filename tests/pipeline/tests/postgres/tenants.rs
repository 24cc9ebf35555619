//! Handlers of a batch that set a tenant for row-level security.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::Duration;

use idem_conformance::store::{Setup, World};
use idem_core::{BoxError, Handler, Postgres, State, Worker};
use idem_test::{Broker, Publication};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Connection, PgConnection, raw_sql};
use uuid::Uuid;

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

    type Params = State<Payments>;

    idem_conformance::keyed_by_id!(Payment, PgConnection);

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
async fn pay(store: Postgres, table: &str) {
    let (broker, count) = (Broker::new(), 6);
    let queue = broker.queue("payments");
    for n in 0..count {
        let tenant = (n % 2 == 0).then(|| format!("tenant {n}"));
        broker.publish("payments", Publication::json(&Payment { id: n.to_string(), tenant }).unwrap());
    }
    let worker = Worker::new("billing", store, queue.clone()).state(Payments(table.to_owned())).handler::<Pay>();
    // It waits until the batch is full.
    let worker = worker.batch(count).linger(Duration::from_secs(20)).concurrency(1);
    let processed = async {
        while queue.counts().acks < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), worker.run_until(processed)).await.unwrap().unwrap();
}

/// Returns the number of transactions, of payments with their own tenant, and of payments without one.
async fn paid(connection: &mut PgConnection, table: &str) -> (i64, i64, i64) {
    let counted = format!(
        "SELECT count(DISTINCT xid), count(*) FILTER (WHERE id::int % 2 = 0 AND tenant = 'tenant ' || id),
             count(*) FILTER (WHERE id::int % 2 = 1 AND tenant = '') FROM {table}"
    );
    sqlx::query_as(AssertSqlSafe(counted)).fetch_one(connection).await.unwrap()
}

#[tokio::test]
async fn a_handler_that_forgets_its_tenant_sees_none_of_its_batch() {
    let Some(world) = PostgresWorld::make().await else { return };
    let table = world.name("payments");
    world.run(&format!("CREATE TABLE {table} (id text, tenant text, xid text)")).await;
    let store = world.options(&world.url, Setup::default()).reset_between_messages().connect().await.unwrap();
    pay(store, &table).await;
    let mut connection = PgConnection::connect(&world.url).await.unwrap();
    assert_eq!(paid(&mut connection, &table).await, (1, 3, 3), "in one transaction");
}

/// The role and the database are this test's own: row-level security applies to a role in a whole database.
#[tokio::test]
async fn batches_are_reset_between_messages_if_row_level_security_applies_to_the_role() {
    let Some(world) = PostgresWorld::make().await else { return };
    let name = format!("idem_tenants_{}", Uuid::new_v4().simple());
    world.run(&format!("CREATE ROLE {name} LOGIN PASSWORD 'secret'")).await;
    world.run(&format!("CREATE DATABASE {name} OWNER {name}")).await;
    let (_, server) = world.url.rsplit_once('@').unwrap();
    let (server, _) = server.rsplit_once('/').unwrap();
    let url = format!("postgres://{name}:secret@{server}/{name}");
    let mut connection = PgConnection::connect(&url).await.unwrap();
    // Otherwise the owner of a table sees all of its rows.
    let tables = "CREATE SCHEMA shop; CREATE TABLE shop.payments (id text, tenant text, xid text);
         ALTER TABLE shop.payments ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
         CREATE POLICY own ON shop.payments USING (tenant = coalesce(current_setting('app.tenant', true), ''))";
    raw_sql(tables).execute(&mut connection).await.unwrap();
    pay(Postgres::options(&url).connect().await.unwrap(), "shop.payments").await;
    raw_sql("ALTER TABLE shop.payments DISABLE ROW LEVEL SECURITY").execute(&mut connection).await.unwrap();
    assert_eq!(paid(&mut connection, "shop.payments").await, (1, 3, 3), "in one transaction");
    connection.close().await.unwrap();
    world.run(&format!("DROP DATABASE {name} WITH (FORCE)")).await;
    world.run(&format!("DROP ROLE {name}")).await;
}
