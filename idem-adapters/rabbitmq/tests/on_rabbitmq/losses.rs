//! Connections, channels and consumers that end.

use crate::common;
use crate::common::relay::Relay;
use crate::common::{World, loss, next, subscribe_options};
use idem_conformance::texts;
use idem_core::{Acker, Settled, Source};
use idem_rabbitmq::RabbitMq;

#[tokio::test]
async fn deliveries_buffered_before_the_loss_are_not_delivered() {
    let Some(world) = World::new().await else { return };
    let relay = Relay::start(&world.url).await;
    world.publish_each(0..5).await;
    let mut queue = world.open_through(&relay, 5).await;
    let _first = next(&mut queue).await;
    world.until_ready(0).await;
    relay.refuse(true);
    // Once the server has all messages back, it has noticed the loss.
    world.until_ready(5).await;
    loss(&mut queue).await;
}

#[tokio::test]
async fn a_channel_that_the_server_closed_fails_next_and_opens_again() {
    let Some(world) = World::new().await else { return };
    let relay = Relay::start(&world.url).await;
    world.publish("x").await;
    let mut queue = world.open_through(&relay, 4).await;
    let (_, acker) = next(&mut queue).await;
    relay.ack_nonsense();
    let error = loss(&mut queue).await;
    assert!(texts(error.as_ref()).contains("unknown delivery tag"), "{}", texts(error.as_ref()));
    loss(&mut queue).await;
    assert!(!acker.is_live());
    assert_eq!(acker.ack().await.unwrap(), Settled::Stale);
    queue.subscribe(subscribe_options(4)).await.unwrap();
    assert!(next(&mut queue).await.0.redelivered());
}

#[tokio::test]
async fn a_deleted_queue_fails_next() {
    let Some(world) = World::new().await else { return };
    let mut queue = world.open(4).await;
    world.delete().await;
    let error = loss(&mut queue).await;
    assert!(texts(error.as_ref()).contains("cancelled"), "{}", texts(error.as_ref()));
    loss(&mut queue).await;
    let error = queue.subscribe(subscribe_options(4)).await.unwrap_err().to_string();
    assert!(error.contains("was deleted") && error.contains(&world.queue), "{error}");
}

#[tokio::test]
async fn a_queue_that_was_recreated_as_a_classic_one_is_refused() {
    let Some(world) = World::new().await else { return };
    let mut queue = world.open(4).await;
    world.delete().await;
    loss(&mut queue).await;
    world.declare("classic", &[]).await;
    let error = queue.subscribe(subscribe_options(4)).await.unwrap_err().to_string();
    assert!(error.contains("not a quorum queue"), "{error}");
}

#[tokio::test]
async fn opening_again_ends_what_was_open() {
    let Some(world) = World::new().await else { return };
    world.publish("x").await;
    let mut queue = world.open(1).await;
    let (_, old) = next(&mut queue).await;
    queue.subscribe(subscribe_options(1)).await.unwrap();
    assert!(!old.is_live());
    let (delivery, new) = next(&mut queue).await;
    assert!(delivery.redelivered());
    assert_eq!(old.ack().await.unwrap(), Settled::Stale);
    assert_eq!(new.ack().await.unwrap(), Settled::Sent);
}

#[tokio::test]
async fn draining_after_a_loss_ends() {
    let Some(world) = World::new().await else { return };
    let relay = Relay::start(&world.url).await;
    let mut queue = world.open_through(&relay, 4).await;
    relay.refuse(true);
    tokio::time::timeout(common::LONG, async {
        queue.drain().await;
        queue.close().await;
    })
    .await
    .unwrap();
}

/// A leaked consumer would hold messages as long as the process lives.
#[tokio::test]
async fn a_subscription_that_is_given_up_at_any_moment_holds_no_message() {
    let Some(world) = World::new().await else { return };
    world.publish("x").await;
    let client = RabbitMq::connect(&world.url).await.unwrap();
    for millis in 0..80 {
        let mut queue = client.queue(&world.queue).await.unwrap();
        let given_up =
            tokio::time::timeout(std::time::Duration::from_millis(millis), queue.subscribe(subscribe_options(4)));
        let _ = given_up.await;
        drop(queue);
    }
    let mut queue = world.open(4).await;
    assert_eq!(next(&mut queue).await.0.payload(), "x");
}
