//! The cost of one message in addition to the handler's statements.

use idem_core::store::{
    ClaimState, Claimed, CommitResult, Identity, InboxRows, LocalMessage, OutboxRows, Replies, RowKind, StoredReply,
    Transactions,
};
use idem_core::{Delivery, Fingerprint, Key, Outgoing, StagedMessage};
use sqlx::Connection;

use crate::proxy::Proxy;
use crate::world::{DEADLINE, World, effect, handler_connection, world_with};

/// A world whose store connects through a proxy.
async fn watched() -> Option<(World, Proxy)> {
    let proxy = Proxy::before(&crate::world::url()?).await;
    let mut world = world_with(|options| options).await?;
    world.store = idem_core::Postgres::options(&proxy.url).schema(&world.schema).connect().await.unwrap();
    Some((world, proxy))
}

/// One direct delivery, with a handler of one statement, or of one statement in a nested transaction.
async fn deliver(world: &World, proxy: &Proxy, key: &str, nested: bool) -> (usize, usize) {
    proxy.trips();
    let mut txn = world.claimed(key).await;
    let before = proxy.trips();
    if nested {
        let mut inner = handler_connection(&mut txn).begin().await.unwrap();
        effect(&world.schema, &mut inner).await;
        inner.commit().await.unwrap();
    } else {
        effect(&world.schema, handler_connection(&mut txn)).await;
    }
    let handler = proxy.trips();
    assert!(matches!(world.store.commit(txn).await, CommitResult::Done));
    (before + proxy.trips(), handler)
}

#[tokio::test]
async fn a_direct_delivery_costs_two_round_trips_beside_the_handlers_own() {
    let Some((mut world, proxy)) = watched().await else { return };
    for key in ["warm", "warmer"] {
        deliver(&world, &proxy, key, false).await;
    }
    let (ours, handlers) = deliver(&world, &proxy, "plain", false).await;
    assert_eq!((ours, handlers), (2, 1));
    deliver(&world, &proxy, "warm nested", true).await;
    let (ours, handlers) = deliver(&world, &proxy, "nested", true).await;
    assert_eq!((ours, handlers), (2, 3));
    assert_eq!(world.effects().await, 5);
    assert_eq!(proxy.connections(), 1 + 1, "and one of idem's own");
}

#[tokio::test]
async fn a_delivery_without_a_claim_costs_two_round_trips_and_makes_no_row() {
    let Some((mut world, proxy)) = watched().await else { return };
    let mut costs = Vec::new();
    for _ in 0..3 {
        proxy.trips();
        let mut txn = world.store.begin_first(DEADLINE, None).await.unwrap().0;
        let begun = proxy.trips();
        effect(&world.schema, handler_connection(&mut txn)).await;
        proxy.trips();
        assert!(matches!(world.store.commit(txn).await, CommitResult::Done));
        costs.push((begun, proxy.trips()));
    }
    assert_eq!(costs[2], (1, 1));
    assert_eq!((world.effects().await, world.number("SELECT count(*) FROM processed_messages").await), (3, 0));
}

#[tokio::test]
async fn a_batch_without_claims_costs_three_round_trips_and_leaves_no_row() {
    let Some((mut world, proxy)) = watched().await else { return };
    let mut costs = Vec::new();
    for _ in 0..3 {
        proxy.trips();
        let mut txn = world.store.begin(DEADLINE).await.unwrap();
        world.store.claim(&mut txn, &[], ClaimState::Processed).await.unwrap();
        let begun = proxy.trips();
        effect(&world.schema, handler_connection(&mut txn)).await;
        proxy.trips();
        assert!(matches!(world.store.commit(txn).await, CommitResult::Done));
        costs.push((begun, proxy.trips()));
    }
    assert_eq!(costs[2], (2, 1));
    assert_eq!((world.effects().await, world.number("SELECT count(*) FROM processed_messages").await), (3, 0));
}

#[tokio::test]
async fn staged_messages_cost_no_further_round_trip_however_large_they_are() {
    let Some((mut world, proxy)) = watched().await else { return };
    let outbox = world.store.register_outbox("billing").await.unwrap();
    // The size of each message, how many are published, and how many are local.
    let cases = [
        (200, 1, 0),
        (200, 100, 0),
        (200, 0, 1),
        (200, 9, 9),
        (9000, 1, 0),
        (20_000, 0, 1),
        (300_000, 1, 1),
        (3000, 100, 0),
    ];
    // Twice, because a connection prepares each statement once.
    for (place, (size, published, locals)) in cases.into_iter().chain(cases).enumerate() {
        proxy.trips();
        let mut txn = world.claimed(&place.to_string()).await;
        let message = |_| StagedMessage::new(uuid::Uuid::new_v4(), Outgoing::new("orders", vec![b'x'; size]).key(7));
        let local = |n| LocalMessage {
            identity: world.identity(&format!("{place} {n}")),
            delivery: Delivery::new("local", vec![b'x'; size]),
            provider_key: None,
        };
        let outgoing = (0..published).map(message).collect();
        world.store.stage(&mut txn, outbox, outgoing, (0..locals).map(local).collect());
        assert!(matches!(world.store.commit(txn).await, CommitResult::Done));
        let trips = proxy.trips();
        let is_first = place < cases.len();
        assert!(is_first || trips == 2, "{trips} for {published} and {locals} of {size} bytes");
    }
    assert_eq!(world.number("SELECT count(*) FROM outbox_messages").await, 2 * 212);
    assert_eq!(world.number("SELECT count(*) FROM inbox_messages").await, 2 * 12);
}

#[tokio::test]
async fn staged_messages_cost_no_further_round_trip_in_a_batch_and_from_the_inbox() {
    let Some((world, proxy)) = watched().await else { return };
    let outbox = world.store.register_outbox("billing").await.unwrap();
    let stage = |txn: &mut idem_core::store::postgres::Txn, messages: usize| {
        let message = |_| StagedMessage::new(uuid::Uuid::new_v4(), Outgoing::new("orders", "{}"));
        world.store.stage(txn, outbox, (0..messages).map(message).collect(), Vec::new());
    };
    let mut costs = Vec::new();
    for (round, messages) in [("warm", 2), ("plain", 0), ("staged", 2)] {
        proxy.trips();
        let mut txn = world.claimed_many(&[&format!("{round} a"), &format!("{round} b")]).await;
        stage(&mut txn, messages);
        assert!(matches!(world.store.commit(txn).await, CommitResult::Done));
        costs.push(proxy.trips());
    }
    assert_eq!(costs[1], costs[2], "of a batch");
    for (key, messages) in [("row warm", 2), ("row plain", 0), ("row staged", 2)] {
        world.schedule(key, Ok(std::time::Duration::ZERO)).await;
        proxy.trips();
        let row = world.fetch(RowKind::Ordinary, 1).await.remove(0);
        let mut txn = world.store.begin(DEADLINE).await.unwrap();
        assert_eq!(world.store.start(&mut txn, &[&row], ClaimState::Processed).await.unwrap(), [true]);
        stage(&mut txn, messages);
        assert!(matches!(world.store.commit(txn).await, CommitResult::Done));
        costs.push(proxy.trips());
    }
    assert_eq!(costs[4], costs[5], "from the inbox");
}

#[tokio::test]
async fn a_duplicate_costs_one_round_trip_beside_the_end_of_its_transaction() {
    let Some((world, proxy)) = watched().await else { return };
    world.process("a").await;
    let mut costs = (0, 0);
    for _ in 0..3 {
        proxy.trips();
        let copy = world.identity("a");
        let claim = world.store.begin_first(DEADLINE, Some(&copy));
        let (txn, claimed) = claim.await.unwrap();
        let claim = proxy.trips();
        let Claimed::Found(Some(existing)) = claimed else { panic!("{claimed:?}") };
        assert_eq!(existing.fingerprint, copy.fingerprint);
        assert!(existing.age.is_some());
        world.store.rollback(txn).await.unwrap();
        costs = (claim, proxy.trips());
    }
    assert_eq!(costs, (1, 1));
}

#[tokio::test]
async fn a_run_from_the_inbox_costs_four_round_trips_with_its_fetch() {
    let Some((world, proxy)) = watched().await else { return };
    let mut costs = 0;
    for key in ["warm", "warmer", "hot"] {
        world.schedule(key, Ok(std::time::Duration::ZERO)).await;
        proxy.trips();
        let row = world.fetch(RowKind::Ordinary, 1).await.remove(0);
        let mut txn = world.store.begin(DEADLINE).await.unwrap();
        assert_eq!(world.store.start(&mut txn, &[&row], ClaimState::Processed).await.unwrap(), [true]);
        assert!(matches!(world.store.commit(txn).await, CommitResult::Done));
        costs = proxy.trips();
    }
    assert_eq!(costs, 4);
}

#[tokio::test]
async fn a_request_costs_two_round_trips_beside_the_handlers_own_and_a_repeat_costs_two() {
    let Some((mut world, proxy)) = watched().await else { return };
    let handler = world.store.register_requests("api", DEADLINE).await.unwrap();
    let mut costs = Vec::new();
    for number in 0..3 {
        let (key, fingerprint) = (Key::of(&format!("k-{number}")).unwrap(), Fingerprint::of(b"{}"));
        let request = Identity { handler, key, fingerprint };
        proxy.trips();
        let (mut txn, claimed) = world.store.begin_first(DEADLINE, Some(&request)).await.unwrap();
        assert!(claimed.is_new());
        let begun = proxy.trips();
        effect(&world.schema, handler_connection(&mut txn)).await;
        proxy.trips();
        let reply = StoredReply { status: 201, headers: "etag: 1\n".into(), body: vec![0, 255, b'\'', b'\\'].into() };
        world.store.keep_reply(&mut txn, &request, reply.clone());
        assert!(matches!(world.store.commit(txn).await, CommitResult::Done));
        let committed = proxy.trips();
        let (txn, claimed) = world.store.begin_first(DEADLINE, Some(&request)).await.unwrap();
        assert!(matches!(claimed, Claimed::Found(Some(_))));
        assert_eq!(world.store.find_reply(txn, &request).await.unwrap(), Some(reply));
        costs.push((begun, committed, proxy.trips()));
    }
    assert_eq!(costs[2], (1, 1, 2));
    assert_eq!(world.effects().await, 3);
}
