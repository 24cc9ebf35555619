//! Several topics, and topic patterns, in one worker.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::common::{LONG, World, loss, next, options, subscribe_options};
use idem_conformance::texts;
use idem_core::{Acker, DeliveryOrder, Error, ReplayWindow, Source};
use idem_kafka::{Start, Topic};
use rdkafka::admin::AdminOptions;
use rdkafka::{Offset, TopicPartitionList};

/// Two topics with one partition each, in one group.
async fn two() -> Option<(World, World)> {
    let one = World::new().await?;
    let other = one.beside("other");
    other.create(1, &[]).await;
    Some((one, other))
}

async fn of(world: &World, topics: &[&str]) -> Topic {
    world.kafka().await.topics(topics.iter().copied()).await.unwrap().group(&world.group)
}

/// All topics whose names begin with the name of this one.
async fn matching(world: &World) -> Topic {
    of(world, &[&format!("^{}", world.topic)]).await
}

async fn opened(mut topic: Topic) -> Topic {
    topic.subscribe(subscribe_options(8)).await.unwrap();
    topic
}

/// Takes this many deliveries, acks them, and returns the topic and the payload of each.
async fn take(topic: &mut Topic, count: usize) -> BTreeSet<(String, String)> {
    let mut seen = BTreeSet::new();
    for _ in 0..count {
        let (delivery, acker) = next(topic).await;
        seen.insert((delivery.source().to_owned(), String::from_utf8(delivery.payload().to_vec()).unwrap()));
        acker.ack().await.unwrap();
    }
    seen
}

fn seen(expected: &[(&World, &str)]) -> BTreeSet<(String, String)> {
    expected.iter().map(|(world, payload)| (world.topic.clone(), (*payload).to_owned())).collect()
}

async fn delete_before(world: &World, offset: i64) {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&world.topic, 0, Offset::Offset(offset)).unwrap();
    world.admin.delete_records(&list, &AdminOptions::new()).await.unwrap();
}

#[tokio::test]
async fn several_topics_are_consumed_in_one_worker_and_each_delivery_names_its_own() {
    let Some((one, other)) = two().await else { return };
    for (world, payload) in [(&one, "a"), (&one, "b"), (&other, "c")] {
        world.publish(payload).await;
    }
    let mut topic = opened(of(&one, &[&one.topic, &other.topic]).await).await;
    assert_eq!(topic.name(), format!("{},{}", one.topic, other.topic));
    let mut positions = BTreeSet::new();
    for _ in 0..3 {
        let (delivery, acker) = next(&mut topic).await;
        assert!(delivery.position().unwrap().starts_with(&format!("{}/0/", delivery.source())));
        positions.insert((delivery.source().to_owned(), delivery.position().unwrap().to_owned()));
        acker.ack().await.unwrap();
    }
    let from = |world: &World| positions.iter().filter(|(source, _)| *source == world.topic).count();
    assert_eq!((from(&one), from(&other)), (2, 1));
    one.until_committed(0, 2).await;
    other.until_committed(0, 1).await;
    assert!(one.note(0) != other.note(0) && one.note(0).starts_with("idem topic "), "each has its own id");
}

#[tokio::test]
async fn partitions_of_one_number_in_two_topics_are_two_ordering_keys_and_two_offsets() {
    let Some((one, other)) = two().await else { return };
    for payload in ["first", "second"] {
        one.publish(payload).await;
        other.publish(payload).await;
    }
    let mut topic = of(&one, &[&one.topic, &other.topic]).await;
    topic.subscribe(subscribe_options(8).with_order(DeliveryOrder::Partition)).await.unwrap();
    let (held, _unsettled) = next(&mut topic).await;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let (delivery, acker) = next(&mut topic).await;
        assert_ne!(delivery.ordering_key(), held.ordering_key(), "a worker would have them wait for each other");
        seen.push(delivery.payload().clone());
        acker.ack().await.unwrap();
    }
    assert_eq!(seen, ["first", "second"], "what is held of one topic stops the other");
    let (held, free) = if held.source() == one.topic { (&one, &other) } else { (&other, &one) };
    free.until_committed(0, 2).await;
    assert_eq!(held.committed(0), None);
}

#[tokio::test]
async fn a_later_topic_that_matches_a_pattern_is_consumed_from_its_first_message() {
    let Some(world) = World::new().await else { return };
    world.publish("old").await;
    let mut topic = opened(matching(&world).await.start(Start::Latest)).await;
    let later = world.beside("later");
    later.create(2, &[]).await;
    later.publish("a").await;
    later.publish_to(1, "b").await;
    assert_eq!(take(&mut topic, 2).await, seen(&[(&later, "a"), (&later, "b")]));
    world.publish("new").await;
    assert_eq!(take(&mut topic, 1).await, seen(&[(&world, "new")]));
    later.until_committed(1, 1).await;
    topic.close().await;
    // A topic that is created while the group has no members is also consumed from its first message, regardless of the
    // start.
    let unseen = world.beside("unseen");
    unseen.create(1, &[]).await;
    unseen.publish("while nobody was there").await;
    let mut topic = matching(&world).await.start(Start::Latest);
    topic.subscribe(subscribe_options(8).with_history(true)).await.unwrap();
    assert_eq!(take(&mut topic, 1).await, seen(&[(&unseen, "while nobody was there")]));
}

#[tokio::test]
async fn a_deleted_topic_of_a_pattern_stops_no_other_and_starts_over_when_it_is_back() {
    let Some((one, other)) = two().await else { return };
    for world in [&one, &other] {
        world.publish_each(["a", "b"]).await;
    }
    let mut topic = opened(matching(&one).await).await;
    take(&mut topic, 4).await;
    other.until_committed(0, 2).await;
    other.delete().await;
    // No event shows that something does not happen.
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        one.publish("c").await;
        assert_eq!(take(&mut topic, 1).await, seen(&[(&one, "c")]));
    }
    other.create(1, &[]).await;
    other.publish("anew").await;
    // It is another topic with the same name. If that is noticed while it is consumed, the source subscribes again.
    let again = async {
        loop {
            match topic.next().await {
                Ok((delivery, acker)) => {
                    acker.ack().await.unwrap();
                    if delivery.source() == other.topic {
                        return delivery;
                    }
                }
                Err(error) => {
                    println!("opened again: {error}");
                    topic.subscribe(subscribe_options(8)).await.unwrap();
                }
            }
        }
    };
    let anew = tokio::time::timeout(LONG, again).await.expect("it is not begun anew");
    assert_eq!(anew.payload(), "anew");
}

#[tokio::test]
async fn a_topic_of_several_that_is_deleted_is_named() {
    let Some((one, other)) = two().await else { return };
    let mut topic = opened(of(&one, &[&one.topic, &other.topic]).await).await;
    other.delete().await;
    let error = loss(&mut topic).await.to_string();
    assert!(error.contains(&format!("`{}` does not exist", other.topic)), "{error}");
    other.create(1, &[]).await;
    other.publish("anew").await;
    topic.subscribe(subscribe_options(8)).await.unwrap();
    assert_eq!(take(&mut topic, 1).await, seen(&[(&other, "anew")]));
}

#[tokio::test]
async fn an_offset_out_of_range_in_one_topic_leaves_the_other_alone() {
    let Some((one, other)) = two().await else { return };
    for n in 0..5 {
        one.publish(n.to_string()).await;
    }
    one.commit(0, 1);
    delete_before(&one, 3).await;
    let mut topic = opened(of(&one, &[&one.topic, &other.topic]).await).await;
    other.publish("x").await;
    assert_eq!(take(&mut topic, 1).await, seen(&[(&other, "x")]));
    other.until_committed(0, 1).await;
    assert!(tokio::time::timeout(Duration::from_millis(300), topic.next()).await.is_err());
    topic.close().await;
    assert_eq!(one.committed(0), Some(1), "nothing was reset");
}

#[tokio::test]
async fn a_group_without_offsets_in_any_topic_skips_nothing_silently() {
    let Some((one, other)) = two().await else { return };
    let mut topic = of(&one, &[&one.topic, &other.topic]).await.start(Start::Latest);
    let error = texts(topic.subscribe(subscribe_options(8).with_history(true)).await.unwrap_err().as_ref());
    let options = format!("--topic {} --topic {} --reset-offsets", one.topic, other.topic);
    assert!(error.contains("Start::Latest") && error.contains(&options), "{error}");
    assert_eq!((one.committed(0), other.committed(0)), (None, None));
}

#[tokio::test]
async fn the_longest_retention_of_the_topics_counts() {
    let Some((one, other)) = two().await else { return };
    one.set("retention.ms", "3600000").await;
    other.set("retention.ms", "86400000").await;
    let topic = opened(matching(&one).await).await;
    assert_eq!(topic.replay_window(), ReplayWindow::Within(Duration::from_secs(86_400)));
}

#[tokio::test]
async fn the_lag_is_reported_for_each_topic_from_where_the_group_stands() {
    let Some((one, other)) = two().await else { return };
    for payload in ["a", "b", "c"] {
        one.publish(payload).await;
        other.publish(payload).await;
    }
    delete_before(&one, 1).await;
    other.commit(0, 2);
    let mut topic = opened(matching(&one).await).await;
    let lag = topic.lag().unwrap();
    let lags = async |expected: (u64, u64)| {
        let expected = [(one.topic.as_str().into(), expected.0), (other.topic.as_str().into(), expected.1)];
        let told = async {
            while lag.call().await.unwrap() != expected {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(LONG, told).await.expect("the lag is another one");
    };
    lags((2, 1)).await;
    take(&mut topic, 3).await;
    lags((0, 0)).await;
}

#[tokio::test]
async fn a_missing_topic_is_refused_by_name() {
    let Some(world) = World::new().await else { return };
    let kafka = options(&world.brokers).connect().await.unwrap();
    let (absent, pattern) = (format!("{}-absent", world.topic), format!("^{}-absent", world.topic));
    for (asked, said) in [
        (vec![world.topic.clone(), absent.clone()], format!("`{absent}` does not exist")),
        (vec![pattern.clone()], format!("matches `{pattern}`")),
        (vec!["^(".to_owned()], "cannot be read".to_owned()),
        (Vec::new(), "at least one".to_owned()),
    ] {
        let error = kafka.topics(asked).await.unwrap_err();
        assert!(matches!(&error, Error::Config(text) if text.contains(&said)), "{error:?}");
    }
}

#[tokio::test]
async fn a_topic_that_is_created_while_a_worker_starts_is_found() {
    let Some(world) = World::empty().await else { return };
    let kafka = options(&world.brokers).connect().await.unwrap();
    // The first request finds no topic: a client needs far less than half a second for it.
    let created = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        world.create(1, &[]).await;
    };
    let (found, ()) = tokio::join!(kafka.topics([world.topic.clone()]), created);
    assert!(found.is_ok(), "{found:?}");
}
