//! How many round trips to PostgreSQL the messages of a handler cost.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::Duration;

use idem_conformance::store::{Setup, World};
use idem_core::store::{ClaimState, Claims, CommitResult, Identity, LocalMessage, OutboxRows, Transactions};
use idem_core::{Delivery, Fingerprint, Key, Outgoing, Postgres, StagedMessage};
use uuid::Uuid;

use wire::Wire;
use world::PostgresWorld;

#[path = "worlds/wire.rs"]
mod wire;
#[path = "worlds/postgres.rs"]
mod world;

/// A message whose payload has this size, under a key.
fn local(handler: &Identity, key: &str, size: usize) -> LocalMessage {
    let payload = vec![b'x'; size];
    let (key, fingerprint) = (Key::of(key).unwrap(), Fingerprint::of(&payload));
    let identity = Identity { key, fingerprint, ..handler.clone() };
    LocalMessage { identity, delivery: Delivery::new("local", payload), provider_key: None }
}

/// Small messages, published and local ones, travel with COMMIT. Large ones cost a statement for each kind.
#[tokio::test]
async fn small_messages_of_a_handler_cost_no_round_trip() {
    let Some(world) = PostgresWorld::make().await else { return };
    let wire = Wire::start(&world.url).await;
    let store: Postgres = world.options(&wire.url, Setup::default()).connect().await.unwrap();
    let handler = store.register("billing", &["receives"]).await.unwrap()[0];
    let outbox = store.register_outbox("billing").await.unwrap();
    let cases = [(0, 0, 1), (1, 0, 1), (0, 1, 1), (9, 9, 1), (1, 0, 20_000), (0, 1, 20_000), (1, 1, 20_000)];
    let mut found = Vec::new();
    // Twice, because a connection prepares each statement once.
    for (place, (locals, published, size)) in cases.into_iter().chain(cases).enumerate() {
        let identity =
            Identity { handler, key: Key::of(&place.to_string()).unwrap(), fingerprint: Fingerprint::none() };
        let begun = store.begin_with_claim(Duration::from_secs(30), &identity, ClaimState::Processed).await;
        let mut txn = begun.unwrap().0;
        let messages = (0..locals).map(|n| local(&identity, &format!("{place} {n}"), size)).collect();
        store.stage_local(&mut txn, messages).unwrap();
        let message = |_| StagedMessage::new(Uuid::new_v4(), Outgoing::new("orders", vec![b'x'; size]));
        store.stage(&mut txn, outbox, (0..published).map(message).collect()).unwrap();
        let before = wire.trips();
        let done = store.commit(txn).await;
        assert!(matches!(done, CommitResult::Done), "{done:?}");
        found.push(wire.trips() - before);
    }
    assert_eq!(found[cases.len()..], [1, 1, 1, 1, 2, 2, 3]);
}
