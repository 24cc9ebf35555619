//! Row-level security behind the pooler, which may have set the tenant itself.

use idem_conformance::captured;
use idem_conformance::store::{Setup, World};
use sqlx::{Connection, PgConnection, raw_sql};
use tracing::instrument::WithSubscriber;
use uuid::Uuid;

use crate::direct::PostgresWorld;
use crate::world::PgBouncerWorld;

/// The role and the database are this test's own: row-level security applies to a role in a whole database.
#[tokio::test]
async fn row_level_security_behind_a_pooler_is_a_warning_that_names_the_option() {
    let Some(direct) = PostgresWorld::make().await else { return };
    let name = format!("idem_tenants_{}", Uuid::new_v4().simple());
    direct.run(&format!("CREATE ROLE {name} LOGIN PASSWORD 'secret'")).await;
    direct.run(&format!("CREATE DATABASE {name} OWNER {name}")).await;
    let (_, server) = direct.url.rsplit_once('@').unwrap();
    let (server, _) = server.rsplit_once('/').unwrap();
    let url = format!("postgres://{name}:secret@{server}/{name}");
    let mut connection = PgConnection::connect(&url).await.unwrap();
    // Otherwise the owner of a table sees all of its rows.
    let tables = "CREATE SCHEMA shop; CREATE TABLE shop.payments (id text, tenant text);
         ALTER TABLE shop.payments ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY";
    raw_sql(tables).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();

    let Some(world) = PgBouncerWorld::before(direct, &url).await else { return };
    let (text, subscriber) = captured();
    world.store(Setup::default()).with_subscriber(subscriber).await.unwrap();
    let (text, remedy) = (text.to_string(), "unless the store has `.reset_between_messages()`");
    let warning = text.lines().find(|line| line.contains("row-level security applies")).unwrap_or(&text);
    assert!(warning.contains("WARN") && warning.contains(remedy), "{warning}");
    world.run(&format!("DROP DATABASE {name} WITH (FORCE)")).await;
    world.run(&format!("DROP ROLE {name}")).await;
}
