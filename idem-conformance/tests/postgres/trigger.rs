//! A trigger that a handler can turn off.

use idem_conformance::store::{Setup, World};
use idem_test::captured;
use tracing::instrument::WithSubscriber;

use crate::world::PostgresWorld;

async fn log_of_a_start(world: &PostgresWorld) -> String {
    let (text, subscriber) = captured();
    world.store(Setup::default()).with_subscriber(subscriber).await.unwrap();
    text.to_string()
}

/// `pg_restore --disable-triggers` leaves it enabled, but not as ALWAYS. A service starts after that, as before.
#[tokio::test]
async fn a_trigger_that_a_handler_can_turn_off_is_a_warning_with_the_statement_that_cures_it() {
    let Some(world) = PostgresWorld::make().await else { return };
    world.store(Setup::default()).await.unwrap();
    let table = world.own("processed_messages");
    world.run(&format!("ALTER TABLE {table} DISABLE TRIGGER ALL; ALTER TABLE {table} ENABLE TRIGGER ALL")).await;
    let text = log_of_a_start(&world).await;
    let cure = format!("ALTER TABLE {table} ENABLE ALWAYS TRIGGER refuse_commit");
    assert!(text.contains("WARN") && text.contains("session_replication_role") && text.contains(&cure), "{text}");
    world.run(&cure).await;
    let text = log_of_a_start(&world).await;
    assert!(!text.contains("refuse_commit"), "{text}");
}
