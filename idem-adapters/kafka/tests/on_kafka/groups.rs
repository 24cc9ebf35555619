//! Members that join and leave.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::common;
use crate::common::relay;
use crate::common::{LONG, World, next, options, subscribe_options};
use idem_core::{Acker, Delivery, Settled, Source};
use idem_kafka::{KafkaAcker, Topic};

/// The partition and the offset.
fn place(delivery: &Delivery) -> (i32, i64) {
    let place = delivery.position().unwrap().rsplit_once('@').unwrap().0;
    let mut parts = place.rsplit('/').map(|part| part.parse::<i64>().unwrap());
    let offset = parts.next().unwrap();
    (i32::try_from(parts.next().unwrap()).unwrap(), offset)
}

/// Publishes three messages to each of two partitions, and lets the first member take them all.
async fn at_work(world: &World, topic: &mut Topic) -> BTreeMap<(i32, i64), KafkaAcker> {
    for n in 0..6 {
        world.publish_to(n % 2, n.to_string()).await;
    }
    let mut work = BTreeMap::new();
    for _ in 0..6 {
        let (delivery, acker) = next(topic).await;
        work.insert(place(&delivery), acker);
    }
    work
}

/// Waits until one of two partitions is being revoked, and returns which.
async fn leaving(work: &BTreeMap<(i32, i64), KafkaAcker>) -> i32 {
    let gone = async {
        loop {
            if let Some(((partition, _), _)) = work.iter().find(|(_, acker)| !acker.is_live()) {
                return *partition;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, gone).await.expect("no partition has moved")
}

#[tokio::test]
async fn a_delivery_that_ends_within_the_grace_is_committed_before_the_next_owner_begins() {
    let Some(world) = World::with(2).await else { return };
    let mut one = world.open(10).await;
    let mut work = at_work(&world, &mut one).await;
    let mut two = world.topic().await;
    let (opened, partition) = tokio::join!(two.subscribe(subscribe_options(10)), async {
        let partition = leaving(&work).await;
        for offset in [0, 1] {
            let acker = work.remove(&(partition, offset)).unwrap();
            assert_eq!(acker.ack().await.unwrap(), Settled::Sent);
        }
        // Dropped deliveries are not waited for.
        drop(work.remove(&(partition, 2)));
        partition
    });
    opened.unwrap();
    let (delivery, _) = next(&mut two).await;
    assert_eq!(place(&delivery), (partition, 2), "what was finished does not come again");
    assert!(delivery.redelivered());
    for ((_, offset), acker) in work {
        assert_eq!(acker.ack().await.unwrap(), Settled::Sent, "the other partition has stayed: {offset}");
    }
    world.until_committed(1 - partition, 3).await;
}

#[tokio::test]
async fn a_delivery_that_ends_after_the_grace_is_stale_and_commits_nothing() {
    let Some(world) = World::with(2).await else { return };
    let mut one = world.open(10).await;
    let mut work = at_work(&world, &mut one).await;
    let mut two = world.topic().await;
    two.subscribe(subscribe_options(10)).await.unwrap();
    let partition = leaving(&work).await;
    let mut again = Vec::new();
    for offset in 0..3 {
        let (delivery, acker) = next(&mut two).await;
        assert_eq!(place(&delivery), (partition, offset));
        again.push(acker);
    }
    for offset in 0..3 {
        let acker = work.remove(&(partition, offset)).unwrap();
        assert_eq!(acker.ack().await.unwrap(), Settled::Stale);
    }
    // The commit of the other partition would include any stored offset of this one.
    for offset in 0..3 {
        assert_eq!(work.remove(&(1 - partition, offset)).unwrap().ack().await.unwrap(), Settled::Sent);
    }
    world.until_committed(1 - partition, 3).await;
    assert_eq!(world.committed(partition), None);
    one.close().await;
    assert_eq!(world.committed(partition), None);
    again.remove(0).ack().await.unwrap();
    world.until_committed(partition, 1).await;
}

#[tokio::test]
async fn nothing_is_committed_after_a_partition_was_lost() {
    for _ in 0..5 {
        let Some(world) = World::new().await else { return };
        if nothing_is_committed_after_an_unnoticed_loss(&world).await {
            return;
        }
    }
    panic!("the first member has noticed its loss each time before it finished what it had");
}

/// Returns `false` if the member has noticed the loss by itself, as its client sometimes does on a busy machine.
async fn nothing_is_committed_after_an_unnoticed_loss(world: &World) -> bool {
    let relay = relay::start(&world.brokers).await;
    let quick = |brokers: &str| {
        options(brokers).property("session.timeout.ms", "1500").property("max.poll.interval.ms", "1500")
    };
    let topic = async |brokers: &str| quick(brokers).connect().await.unwrap().topic(&world.topic).await.unwrap();
    world.publish_each(0..3).await;
    let mut one = topic(relay.address()).await.group(&world.group);
    one.subscribe(subscribe_options(4)).await.unwrap();
    let mut old = Vec::new();
    for _ in 0..3 {
        old.push(next(&mut one).await.1);
    }
    relay.refuse(true);
    common::loss(&mut one).await;
    // The group gives up the first member when its session ends.
    let mut two = topic(&world.brokers).await.group(&world.group);
    two.subscribe(subscribe_options(4)).await.unwrap();
    let (again, held) = next(&mut two).await;
    assert_eq!(again.payload(), "0");
    // The first member has finished two deliveries meanwhile, and cannot know about the loss.
    let last = old.pop().unwrap();
    for acker in old {
        if acker.ack().await.unwrap() == Settled::Stale {
            return false;
        }
    }
    relay.refuse(false);
    one.subscribe(subscribe_options(4)).await.unwrap();
    let told = async {
        while last.is_live() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, told).await.expect("the loss was not noticed");
    assert_eq!(last.ack().await.unwrap(), Settled::Stale);
    // A commit is tried a few times a second, and no event shows that something does not happen.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.committed(0), None);
    drop(held);
    one.close().await;
    two.close().await;
    assert_eq!(world.committed(0), None);
    assert_eq!(next(&mut world.open(1).await).await.0.payload(), "0");
    true
}

#[tokio::test]
async fn a_partition_that_is_added_while_it_runs_is_consumed_from_its_first_message_on() {
    let Some(world) = World::new().await else { return };
    world.publish("first").await;
    let mut topic = world.open(4).await;
    assert_eq!(next(&mut topic).await.0.payload(), "first");
    world.grow(2).await;
    world.publish_to(1, "added").await;
    let (delivery, _) = next(&mut topic).await;
    assert_eq!((delivery.payload().as_ref(), place(&delivery)), (&b"added"[..], (1, 0)));
}

/// A worker waits for 5 seconds.
#[tokio::test]
async fn a_broker_that_hangs_does_not_keep_a_member_from_leaving() {
    let Some(world) = World::new().await else { return };
    let relay = relay::start(&world.brokers).await;
    world.publish("x").await;
    let mut topic = world.open_through(&relay, 4).await;
    let (_, acker) = next(&mut topic).await;
    relay.hold(true);
    assert_eq!(acker.ack().await.unwrap(), Settled::Sent);
    let began = Instant::now();
    topic.drain().await;
    topic.close().await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(world.committed(0), None, "it hangs");
}

#[tokio::test]
async fn a_member_without_a_partition_opens_and_takes_over() {
    let Some(world) = World::new().await else { return };
    let mut one = world.open(1).await;
    let mut two = world.open(1).await;
    one.close().await;
    world.publish("x").await;
    assert_eq!(next(&mut two).await.0.payload(), "x");
}
