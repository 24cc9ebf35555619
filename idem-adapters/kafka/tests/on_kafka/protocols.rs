//! The protocol of KIP-848, in which the brokers assign the partitions.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::{LONG, World, loss, next, subscribe_options};
use idem_conformance::texts;
use idem_core::{Acker, Settled, Source};
use idem_kafka::{GroupProtocol, Kafka, Topic};
use tokio::time::timeout;

async fn member(world: &World) -> Topic {
    let kafka = Kafka::options(&world.brokers).property("topic.metadata.refresh.interval.ms", "300");
    let topic = kafka.connect().await.unwrap().topics([format!("^{}", world.topic)]).await.unwrap();
    topic.group(&world.group).group_protocol(GroupProtocol::Consumer)
}

async fn joined(world: &World) -> Topic {
    let mut member = member(world).await;
    member.subscribe(subscribe_options(4)).await.unwrap();
    member
}

#[tokio::test]
async fn a_group_of_the_new_protocol_commits_what_is_finished_and_goes_on_there() {
    let Some(world) = World::new().await else { return };
    world.publish_each(["a", "b"]).await;
    let mut topic = joined(&world).await;
    let (delivery, acker) = next(&mut topic).await;
    assert_eq!(delivery.payload(), "a");
    assert_eq!(acker.ack().await.unwrap(), Settled::Sent);
    world.until_committed(0, 1).await;
    let (_, unsettled) = next(&mut topic).await;
    topic.close().await;
    assert!(!unsettled.is_live());
    let mut topic = joined(&world).await;
    assert_eq!(next(&mut topic).await.0.payload(), "b");
    // Topics that are created later are consumed as well.
    let later = world.beside("later");
    later.create(1, &[]).await;
    later.publish("c").await;
    assert_eq!(next(&mut topic).await.0.payload(), "c");
}

#[tokio::test]
async fn two_members_of_the_new_protocol_share_the_partitions_and_lose_nothing() {
    let Some(world) = World::with(4).await else { return };
    let mut one = joined(&world).await;
    let mut other = joined(&world).await;
    let (mut seen, mut by_other) = (BTreeSet::new(), 0);
    let shared = async {
        for n in 0.. {
            world.publish_to(n % 4, n.to_string()).await;
            let ((delivery, acker), is_other) = tokio::select! {
                delivery = one.next() => (delivery.unwrap(), false),
                delivery = other.next() => (delivery.unwrap(), true),
            };
            seen.insert(delivery.payload().clone());
            by_other += i32::from(is_other);
            acker.ack().await.unwrap();
            if by_other > 10 {
                return n;
            }
        }
        0
    };
    let last = timeout(Duration::from_secs(60), shared).await.expect("the second member was given nothing");
    one.close().await;
    // The other member receives the rest.
    let rest = async {
        while seen.len() <= usize::try_from(last).unwrap() {
            let (delivery, acker) = other.next().await.unwrap();
            seen.insert(delivery.payload().clone());
            acker.ack().await.unwrap();
        }
    };
    timeout(Duration::from_secs(60), rest).await.expect("something was lost");
}

#[tokio::test]
async fn a_setting_that_the_new_protocol_does_not_have_is_refused() {
    let Some(world) = World::new().await else { return };
    let mut topic = world.topic().await.group_protocol(GroupProtocol::Consumer);
    let error = topic.subscribe(subscribe_options(1)).await.unwrap_err().to_string();
    assert!(error.contains("`session.timeout.ms`") || error.contains("`heartbeat.interval.ms`"), "{error}");
    assert!(error.contains("group.consumer."), "{error}");
}

#[tokio::test]
async fn an_assignor_that_the_brokers_do_not_know_is_named() {
    let Some(world) = World::new().await else { return };
    let kafka = Kafka::options(&world.brokers).property("group.remote.assignor", "nonesuch").connect().await.unwrap();
    let topic = world.topic_of(&kafka).await;
    let mut topic = topic.group_protocol(GroupProtocol::Consumer);
    let said = async {
        match topic.subscribe(subscribe_options(1)).await {
            Err(error) => texts(error.as_ref()),
            Ok(()) => texts(topic.next().await.unwrap_err().as_ref()),
        }
    };
    let said = timeout(LONG, said).await.expect("it waits for ever");
    assert!(said.contains("`group.remote.assignor`"), "{said}");
}

#[tokio::test]
async fn a_topic_that_is_deleted_ends_the_subscription_by_the_new_protocol_too() {
    let Some(world) = World::new().await else { return };
    world.publish_each(0..3).await;
    let kafka = Kafka::connect(&world.brokers).await.unwrap();
    let topic = world.topic_of(&kafka).await;
    let mut topic = topic.group_protocol(GroupProtocol::Consumer);
    topic.subscribe(subscribe_options(4)).await.unwrap();
    for _ in 0..3 {
        next(&mut topic).await.1.ack().await.unwrap();
    }
    world.until_committed(0, 3).await;
    world.delete().await;
    let error = loss(&mut topic).await.to_string();
    assert!(error.contains("does not exist"), "{error}");
    world.create(1, &[]).await;
    world.publish("anew").await;
    topic.subscribe(subscribe_options(4)).await.unwrap();
    assert_eq!(next(&mut topic).await.0.payload(), "anew");
}
