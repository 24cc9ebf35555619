//! The SQL of the guide on the outbox, run as an operator runs it.

use idem_conformance::store::{Setup, World};
use idem_core::store::{CommitResult, OutboxRows, Transactions};
use idem_core::{Outgoing, Relay, StagedMessage};
use idem_test::MemorySink;
use uuid::Uuid;

use crate::LONG;
use crate::postgres::PostgresWorld;
use crate::sqlite::SqliteWorld;

const GUIDE: &str = include_str!("../../../src/docs/outbox.md");

/// A relay with the new name publishes what was staged under the old one.
async fn renames_an_outbox<W: World>(world: W) {
    let store = world.store(Setup::default()).await.unwrap();
    let outbox = store.register_outbox("billing").await.unwrap();
    let message = StagedMessage::new(Uuid::new_v4(), Outgoing::new("orders", "payload"));
    let mut txn = store.begin(LONG).await.unwrap();
    store.stage(&mut txn, outbox, vec![message.clone()], Vec::new());
    let committed = store.commit(txn).await;
    assert!(matches!(committed, CommitResult::Done), "{committed:?}");
    let sql = GUIDE.split("```sql\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    world.run(&sql.replace("idem_store.", &world.own(""))).await;
    // As a process that starts with the new name.
    let (store, sink) = (world.store(Setup::default()).await.unwrap(), MemorySink::new());
    let published = sink.wait_for(|sink| !sink.published().is_empty());
    let relay = Relay::new("invoicing", store, sink.clone()).run_until(published);
    tokio::time::timeout(LONG, relay).await.unwrap().unwrap();
    assert_eq!(sink.published()[0].id(), message.id());
}

#[tokio::test]
async fn an_outbox_is_renamed_with_its_messages_on_postgres() {
    let Some(world) = PostgresWorld::make().await else { return };
    renames_an_outbox(world).await;
}

#[tokio::test]
async fn an_outbox_is_renamed_with_its_messages_on_sqlite() {
    let Some(world) = SqliteWorld::make().await else { return };
    renames_an_outbox(world).await;
}
