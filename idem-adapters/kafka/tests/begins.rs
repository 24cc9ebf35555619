//! Where a group begins.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod common;

use std::time::Duration;

use common::{World, next, terms};
use idem_core::{Acker, Source, Terms};
use idem_kafka::{Start, Topic};

async fn latest(world: &World) -> Topic {
    let mut topic = world.topic().await.start(Start::Latest);
    topic.open(terms(4)).await.unwrap();
    topic
}

#[tokio::test]
async fn a_new_group_begins_at_the_oldest_message() {
    let Some(world) = World::new().await else { return };
    world.publish("old").await;
    assert_eq!(next(&mut world.open(1).await).await.0.payload(), "old");
}

#[tokio::test]
async fn a_new_group_may_begin_with_what_comes_and_skips_nothing_of_it_in_a_crash() {
    let Some(world) = World::with(2).await else { return };
    for partition in 0..2 {
        world.publish_to(partition, "old").await;
    }
    let mut topic = latest(&world).await;
    // Written down before anything was delivered.
    assert_eq!((world.committed(0), world.committed(1)), (Some(1), Some(1)));
    world.publish("new").await;
    let (delivery, _unsettled) = next(&mut topic).await;
    assert_eq!(delivery.payload(), "new");
    drop(topic);
    assert_eq!(next(&mut latest(&world).await).await.0.payload(), "new");
}

#[tokio::test]
async fn a_group_that_begins_in_an_empty_partition_with_what_comes_skips_nothing() {
    let Some(world) = World::new().await else { return };
    drop(latest(&world).await);
    assert_eq!(world.committed(0), Some(0));
    world.publish("new").await;
    assert_eq!(next(&mut latest(&world).await).await.0.payload(), "new");
}

#[tokio::test]
async fn a_partition_that_is_added_later_begins_at_its_first_message_whatever_the_start() {
    let Some(world) = World::new().await else { return };
    world.publish("old").await;
    let topic = latest(&world).await;
    world.grow(2).await;
    world.publish_to(1, "while it ran").await;
    let mut topic = topic;
    assert_eq!(next(&mut topic).await.0.payload(), "while it ran");
    topic.close().await;
    world.grow(3).await;
    world.publish_to(2, "while nobody was there").await;
    let mut topic = latest(&world).await;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let (delivery, acker) = next(&mut topic).await;
        seen.push(delivery.payload().clone());
        acker.ack().await.unwrap();
    }
    seen.sort();
    assert_eq!(seen, ["while it ran", "while nobody was there"]);
    assert!(tokio::time::timeout(Duration::from_millis(300), topic.next()).await.is_err());
}

#[tokio::test]
async fn a_group_that_has_committed_goes_on_there_whatever_the_start() {
    let Some(world) = World::new().await else { return };
    for payload in ["a", "b", "c"] {
        world.publish(payload).await;
    }
    let mut topic = world.open(4).await;
    next(&mut topic).await.1.ack().await.unwrap();
    topic.close().await;
    assert_eq!(next(&mut latest(&world).await).await.0.payload(), "b");
}

#[tokio::test]
async fn a_group_whose_offsets_have_expired_skips_nothing_without_a_word() {
    let Some(world) = World::new().await else { return };
    world.publish("while nobody was there").await;
    let known = Terms { has_history: true, ..terms(4) };
    let mut topic = world.topic().await.start(Start::Latest);
    let error = topic.open(known.clone()).await.unwrap_err().to_string();
    assert!(
        error.contains("Start::Latest") && error.contains(&world.group) && error.contains("--to-latest"),
        "{error}"
    );
    assert_eq!(world.committed(0), None);
    // Both cures.
    let mut topic = world.topic().await;
    topic.open(known.clone()).await.unwrap();
    assert_eq!(next(&mut topic).await.0.payload(), "while nobody was there");
    topic.close().await;
    world.commit(0, 1);
    let mut topic = world.topic().await.start(Start::Latest);
    topic.open(known).await.unwrap();
    world.publish("new").await;
    assert_eq!(next(&mut topic).await.0.payload(), "new");
}
