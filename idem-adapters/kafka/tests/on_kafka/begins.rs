//! Where a group starts.

use std::time::{Duration, SystemTime};

use crate::common::{World, next, subscribe_options};
use idem_core::{Acker, Error, Source};
use idem_kafka::{Start, Topic};
use rdkafka::admin::AdminOptions;
use rdkafka::producer::FutureRecord;

async fn latest(world: &World) -> Topic {
    let mut topic = world.topic().await.start(Start::Latest);
    topic.subscribe(subscribe_options(4)).await.unwrap();
    topic
}

#[tokio::test]
async fn a_new_group_may_begin_with_what_comes_and_skips_nothing_of_it_in_a_crash() {
    let Some(world) = World::with(2).await else { return };
    for partition in 0..2 {
        world.publish_to(partition, "old").await;
    }
    let mut topic = latest(&world).await;
    // The start is committed before anything is delivered.
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
    world.publish_each(["a", "b", "c"]).await;
    let mut topic = world.open(4).await;
    next(&mut topic).await.1.ack().await.unwrap();
    topic.close().await;
    assert_eq!(next(&mut latest(&world).await).await.0.payload(), "b");
}

#[tokio::test]
async fn a_group_whose_offsets_have_expired_skips_nothing_silently() {
    let Some(world) = World::new().await else { return };
    world.publish("while nobody was there").await;
    let known = subscribe_options(4).with_history(true);
    let mut topic = world.topic().await.start(Start::Latest);
    let error = topic.subscribe(known.clone()).await.unwrap_err().to_string();
    assert!(
        error.contains("Start::Latest") && error.contains(&world.group) && error.contains("--to-latest"),
        "{error}"
    );
    assert_eq!(world.committed(0), None);
    // The two remedies that the error names.
    let mut topic = world.topic().await;
    topic.subscribe(known.clone()).await.unwrap();
    assert_eq!(next(&mut topic).await.0.payload(), "while nobody was there");
    topic.close().await;
    world.commit(0, 1);
    let mut topic = world.topic().await.start(Start::Latest);
    topic.subscribe(known).await.unwrap();
    world.publish("new").await;
    assert_eq!(next(&mut topic).await.0.payload(), "new");
}

#[tokio::test]
async fn a_source_that_has_consumed_before_skips_nothing_if_its_group_loses_its_offsets() {
    let Some(world) = World::new().await else { return };
    let mut topic = latest(&world).await;
    topic.close().await;
    world.admin.delete_groups(&[&world.group], &AdminOptions::new()).await.unwrap()[0].as_ref().unwrap();
    world.publish("while nobody was there").await;
    let error = topic.subscribe(subscribe_options(4)).await.unwrap_err().to_string();
    assert!(error.contains("Start::Latest would skip messages"), "{error}");
    assert_eq!(world.committed(0), None);
}

/// This many minutes ago.
fn ago(minutes: u64) -> SystemTime {
    SystemTime::now() - Duration::from_secs(60 * minutes)
}

/// Publishes to this partition, with a timestamp of this many minutes ago.
async fn publish_at(world: &World, partition: i32, minutes: u64, payload: &str) {
    let time = ago(minutes).duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    let record = FutureRecord::<[u8], _>::to(&world.topic).partition(partition).payload(payload.as_bytes());
    world.send(record.timestamp(i64::try_from(time).unwrap())).await;
}

async fn from(world: &World, start: Start) -> Topic {
    let mut topic = world.topic().await.start(start);
    topic.subscribe(subscribe_options(4)).await.unwrap();
    topic
}

#[tokio::test]
async fn a_new_group_may_begin_at_a_time_in_each_partition() {
    let Some(world) = World::with(3).await else { return };
    for minutes in [50, 40, 30] {
        publish_at(&world, 0, minutes, &format!("{minutes} minutes ago")).await;
        publish_at(&world, 1, minutes + 60, "before all").await;
    }
    let mut topic = from(&world, Start::Time(ago(45))).await;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let (delivery, acker) = next(&mut topic).await;
        seen.push(delivery.payload().clone());
        acker.ack().await.unwrap();
    }
    assert_eq!(seen, ["40 minutes ago", "30 minutes ago"]);
    // In a partition without such a recent message, the start is the end, which is committed.
    assert_eq!((world.committed(1), world.committed(2)), (Some(3), Some(0)));
    topic.close().await;
    world.publish_to(1, "while nobody was there").await;
    assert_eq!(next(&mut from(&world, Start::Time(ago(45))).await).await.0.payload(), "while nobody was there");
}

#[tokio::test]
async fn a_group_whose_offsets_have_expired_begins_at_its_time_again() {
    let Some(world) = World::new().await else { return };
    for minutes in [50, 40] {
        publish_at(&world, 0, minutes, &format!("{minutes} minutes ago")).await;
    }
    let mut topic = world.topic().await.start(Start::Time(ago(45)));
    topic.subscribe(subscribe_options(4).with_history(true)).await.unwrap();
    assert_eq!(next(&mut topic).await.0.payload(), "40 minutes ago");
}

#[tokio::test]
async fn a_partition_may_begin_at_an_offset_unless_the_group_has_committed_there() {
    let Some(world) = World::with(2).await else { return };
    world.publish_each(["a", "b", "c"]).await;
    world.publish_to(1, "x").await;
    world.commit(1, 1);
    let at = async || world.topic().await.start_at(&world.topic, 0, 2).start_at(&world.topic, 1, 0);
    let mut topic = at().await;
    topic.subscribe(subscribe_options(4)).await.unwrap();
    assert_eq!(next(&mut topic).await.0.payload(), "c");
    assert!(tokio::time::timeout(Duration::from_millis(300), topic.next()).await.is_err());
    assert_eq!(world.committed(0), Some(2), "it is written down");
}

#[tokio::test]
async fn a_start_at_an_offset_that_does_not_exist_is_refused() {
    let Some(world) = World::new().await else { return };
    world.publish("a").await;
    for (partition, offset, said) in [(0, 2, "has 0 to 1"), (1, 0, "does not have"), (0, -1, "has 0 to 1")] {
        let mut topic = world.topic().await.start_at(&world.topic, partition, offset);
        let error = topic.subscribe(subscribe_options(4)).await.unwrap_err();
        let refused = matches!(error.downcast_ref(), Some(Error::Config(text)) if text.contains(said));
        assert!(refused && error.to_string().contains(".start_at(..)"), "{error:?}");
        assert_eq!(world.committed(0), None);
    }
}
