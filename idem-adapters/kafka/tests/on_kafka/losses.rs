//! Unreachable brokers, and lost offsets and topics.

use std::time::Duration;

use crate::common::relay;
use crate::common::{LONG, World, loss, next, subscribe_options};
use idem_conformance::texts;
use idem_core::{Acker, Settled, Source};
use idem_kafka::{Kafka, Topic};
use rdkafka::admin::AdminOptions;
use rdkafka::{Offset, TopicPartitionList};

#[tokio::test]
async fn brokers_that_are_away_fail_next_and_are_gone_on_with_when_they_are_back() {
    let Some(world) = World::new().await else { return };
    let relay = relay::start(&world.brokers).await;
    world.publish("before").await;
    let mut topic = world.open_through(&relay, 4).await;
    let (_, held) = next(&mut topic).await;
    relay.refuse(true);
    let error = texts(loss(&mut topic).await.as_ref());
    assert!(error.contains(&world.topic) && error.contains("check that the server runs"), "{error}");
    loss(&mut topic).await;
    let error = topic.subscribe(subscribe_options(4)).await.unwrap_err();
    assert!(texts(error.as_ref()).contains("check that the server runs"), "{error}");
    relay.refuse(false);
    topic.subscribe(subscribe_options(4)).await.unwrap();
    // The member is the same, and no other member has received its deliveries.
    assert!(held.is_live());
    assert_eq!(held.ack().await.unwrap(), Settled::Sent);
    world.publish("after").await;
    let (delivery, acker) = next(&mut topic).await;
    assert_eq!(delivery.payload(), "after");
    acker.ack().await.unwrap();
    world.until_committed(0, 2).await;
}

#[tokio::test]
async fn opening_again_ends_what_was_open() {
    let Some(world) = World::new().await else { return };
    world.publish("x").await;
    let mut topic = world.open(1).await;
    let (_, old) = next(&mut topic).await;
    topic.subscribe(subscribe_options(1)).await.unwrap();
    assert!(!old.is_live());
    let (_, new) = next(&mut topic).await;
    assert_eq!(old.ack().await.unwrap(), Settled::Stale);
    assert_eq!(new.ack().await.unwrap(), Settled::Sent);
}

#[tokio::test]
async fn draining_and_closing_after_a_loss_ends() {
    let Some(world) = World::new().await else { return };
    let relay = relay::start(&world.brokers).await;
    let mut topic = world.open_through(&relay, 4).await;
    relay.refuse(true);
    tokio::time::timeout(LONG, async {
        topic.drain().await;
        topic.close().await;
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_handler_slower_than_the_longest_poll_interval_keeps_its_partition() {
    let Some(world) = World::new().await else { return };
    world.publish_each(0..50).await;
    let kafka = Kafka::options(&world.brokers)
        .property("session.timeout.ms", "1000")
        .property("heartbeat.interval.ms", "300")
        .property("max.poll.interval.ms", "1000");
    let mut topic = kafka.connect().await.unwrap().topic(&world.topic).await.unwrap().group(&world.group).window(8);
    topic.subscribe(subscribe_options(1)).await.unwrap();
    let (_, slow) = next(&mut topic).await;
    // No event shows that something does not happen.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(slow.is_live());
    assert_eq!(slow.ack().await.unwrap(), Settled::Sent);
    world.until_committed(0, 1).await;
    assert_eq!(next(&mut topic).await.0.payload(), "1");
}

/// Checks that a partition whose offset is out of range stalls without skipping a record, while partition 1 continues.
async fn is_stalled(world: &World, topic: &mut Topic, offset: Option<i64>) {
    for payload in ["one", "two"] {
        world.publish_to(1, payload).await;
        let (delivery, acker) = next(topic).await;
        assert_eq!(delivery.payload(), payload);
        acker.ack().await.unwrap();
    }
    world.until_committed(1, 2).await;
    // A client that resets offsets takes about a second to do so.
    assert!(tokio::time::timeout(Duration::from_secs(3), topic.next()).await.is_err());
    topic.close().await;
    assert_eq!(world.committed(0), offset, "nothing was reset");
}

async fn delete_before(world: &World, offset: i64) {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&world.topic, 0, Offset::Offset(offset)).unwrap();
    world.admin.delete_records(&list, &AdminOptions::new()).await.unwrap();
}

#[tokio::test]
async fn an_offset_that_retention_has_passed_stops_its_partition_alone_and_is_never_reset() {
    let Some(world) = World::with(2).await else { return };
    world.publish_each(0..5).await;
    world.commit(0, 1);
    delete_before(&world, 3).await;
    is_stalled(&world, &mut world.open(4).await, Some(1)).await;
    // Applies the remedy that the error names.
    world.commit(0, 3);
    assert_eq!(next(&mut world.open(1).await).await.0.payload(), "3");
}

#[tokio::test]
async fn an_offset_behind_the_end_stops_its_partition_alone_and_is_never_reset() {
    let Some(world) = World::with(2).await else { return };
    world.publish("x").await;
    world.commit(0, 100);
    is_stalled(&world, &mut world.open(4).await, Some(100)).await;
}

#[tokio::test]
async fn an_offset_that_goes_out_of_range_while_it_runs_stops_its_partition_alone() {
    let Some(world) = World::with(2).await else { return };
    let relay = relay::start(&world.brokers).await;
    world.publish("first").await;
    let mut topic = world.open_through(&relay, 4).await;
    let (_, acker) = next(&mut topic).await;
    relay.refuse(true);
    loss(&mut topic).await;
    world.publish_each(1..5).await;
    delete_before(&world, 3).await;
    relay.refuse(false);
    topic.subscribe(subscribe_options(4)).await.unwrap();
    // Deliveries that were handed out before can still be settled.
    assert_eq!(acker.ack().await.unwrap(), Settled::Sent);
    world.until_committed(0, 1).await;
    is_stalled(&world, &mut topic, Some(1)).await;
}

/// A worker whose database is away does not ask for messages meanwhile.
#[tokio::test]
async fn a_subscription_that_ends_while_nobody_asks_for_messages_is_recreated() {
    let Some(world) = World::new().await else { return };
    world.publish("before").await;
    let mut topic = world.open(4).await;
    next(&mut topic).await.1.ack().await.unwrap();
    world.until_committed(0, 1).await;
    world.delete().await;
    let lag = topic.lag().unwrap();
    let ended = async {
        while !lag.call().await.is_err_and(|error| error.to_string().contains("has ended")) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // The lag ends just before the thread does.
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    tokio::time::timeout(LONG, ended).await.unwrap();
    loss(&mut topic).await;
    world.create(1, &[]).await;
    world.publish("anew").await;
    topic.subscribe(subscribe_options(4)).await.unwrap();
    assert_eq!(next(&mut topic).await.0.payload(), "anew");
    topic.close().await;
}

#[tokio::test]
async fn a_topic_that_is_deleted_fails_next_until_it_is_recreated() {
    let Some(world) = World::new().await else { return };
    world.publish_each(0..3).await;
    let mut topic = world.open(4).await;
    let (first, acker) = next(&mut topic).await;
    acker.ack().await.unwrap();
    world.until_committed(0, 1).await;
    world.delete().await;
    // Records that were already fetched may come before the error.
    let error = tokio::time::timeout(LONG, async {
        loop {
            if let Err(error) = topic.next().await {
                return error.to_string();
            }
        }
    });
    let error = error.await.unwrap();
    assert!(error.contains("does not exist") && error.contains("--create"), "{error}");
    let error = topic.subscribe(subscribe_options(4)).await.unwrap_err().to_string();
    assert!(error.contains("does not exist"), "{error}");
    world.create(1, &[]).await;
    world.publish("anew").await;
    topic.subscribe(subscribe_options(4)).await.unwrap();
    let (anew, _) = next(&mut topic).await;
    assert_eq!(anew.payload(), "anew");
    assert_ne!(anew.position(), first.position());
}

#[tokio::test]
async fn a_topic_that_was_recreated_between_two_runs_begins_at_its_beginning() {
    let Some(world) = World::new().await else { return };
    world.publish_each(0..3).await;
    let mut topic = world.open(4).await;
    let mut positions = Vec::new();
    for _ in 0..3 {
        let (delivery, acker) = next(&mut topic).await;
        positions.push(delivery.position().unwrap().to_owned());
        acker.ack().await.unwrap();
    }
    topic.close().await;
    assert_eq!(world.committed(0), Some(3));
    world.delete().await;
    world.create(1, &[]).await;
    world.publish("anew").await;
    topic.subscribe(subscribe_options(4)).await.unwrap();
    let (anew, _) = next(&mut topic).await;
    assert_eq!(anew.payload(), "anew");
    assert!(!positions.contains(&anew.position().unwrap().to_owned()));
}

#[tokio::test]
async fn a_topic_that_is_recreated_while_it_runs_is_an_error_and_never_a_jump() {
    let Some(world) = World::new().await else { return };
    world.publish_each(0..3).await;
    // With default options, which do not refresh the metadata within the time of the test.
    let kafka = Kafka::connect(&world.brokers).await.unwrap();
    let mut topic = world.topic_of(&kafka).await;
    topic.subscribe(subscribe_options(8)).await.unwrap();
    for _ in 0..3 {
        next(&mut topic).await.1.ack().await.unwrap();
    }
    world.until_committed(0, 3).await;
    world.delete().await;
    world.create(1, &[]).await;
    for n in 0..5 {
        world.publish(format!("anew {n}")).await;
    }
    let mut seen = Vec::new();
    tokio::time::timeout(LONG, async {
        while seen.len() < 5 {
            match topic.next().await {
                Ok((delivery, acker)) => {
                    seen.push(String::from_utf8(delivery.payload().to_vec()).unwrap());
                    acker.ack().await.unwrap();
                }
                Err(error) => {
                    println!("{error}");
                    while let Err(error) = topic.subscribe(subscribe_options(8)).await {
                        println!("{error}");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{seen:?}"));
    assert_eq!(seen, ["anew 0", "anew 1", "anew 2", "anew 3", "anew 4"]);
}

#[tokio::test]
async fn an_offset_of_a_topic_that_was_deleted_counts_for_nothing_in_a_new_one() {
    let Some(world) = World::new().await else { return };
    world.publish_each(0..3).await;
    let mut topic = world.open(4).await;
    for _ in 0..3 {
        next(&mut topic).await.1.ack().await.unwrap();
    }
    topic.close().await;
    let note = world.note(0);
    world.delete().await;
    world.create(1, &[]).await;
    for n in 0..5 {
        world.publish(format!("anew {n}")).await;
    }
    // As a member does that has not noticed yet that the topic was recreated.
    world.commit_with(0, 3, &note);
    topic.subscribe(subscribe_options(8)).await.unwrap();
    let (delivery, acker) = next(&mut topic).await;
    assert_eq!(delivery.payload(), "anew 0");
    acker.ack().await.unwrap();
    // The offset is overwritten, although the new one is lower.
    world.until_committed(0, 1).await;
    assert_ne!(world.note(0), note);
    topic.close().await;
    // An operator who resets offsets by hand writes no id.
    world.commit_with(0, 4, "");
    topic.subscribe(subscribe_options(8)).await.unwrap();
    assert_eq!(next(&mut topic).await.0.payload(), "anew 4");
}
