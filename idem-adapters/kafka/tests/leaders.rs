//! Partitions without a leader. Uses the mock cluster of the client, since a real cluster of one broker leads all
//! partitions or none.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod common;

use std::time::{Duration, Instant};

use common::{GROUP, LONG, client, next, subscribe_options};
use idem_core::{Acker, Source};
use idem_kafka::Kafka;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::types::RDKafkaApiKey;

const TOPIC: &str = "orders";

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_without_a_leader_stands_still_and_the_others_go_on() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(TOPIC, 4, 1).unwrap();
    let brokers = cluster.bootstrap_servers();
    let producer: FutureProducer = client(&brokers).create().unwrap();
    let publish = async |partition: i32, payload: &str| {
        let record = FutureRecord::<(), _>::to(TOPIC).partition(partition).payload(payload);
        producer.send(record, LONG).await.unwrap();
    };
    for partition in 0..4 {
        publish(partition, "x").await;
    }
    // Commits an offset in each partition, so that there is an offset to look up.
    {
        let mut topic = kafka(&brokers).await.topic(TOPIC).await.unwrap().group(GROUP);
        topic.subscribe(subscribe_options(8)).await.unwrap();
        for _ in 0..4 {
            next(&mut topic).await.1.ack().await.unwrap();
        }
        topic.close().await;
    }
    for partition in 1..4 {
        cluster.partition_leader(TOPIC, partition, None).unwrap();
    }
    publish(0, "after").await;
    let mut topic = kafka(&brokers).await.topic(TOPIC).await.unwrap().group(GROUP);
    let began = Instant::now();
    topic.subscribe(subscribe_options(8)).await.unwrap();
    let (delivery, acker) = next(&mut topic).await;
    println!("after {:?}", began.elapsed());
    assert_eq!(delivery.payload(), "after");
    acker.ack().await.unwrap();
    // A partition that has a leader again continues by itself.
    cluster.partition_leader(TOPIC, 1, Some(1)).unwrap();
    publish(1, "led").await;
    assert_eq!(next(&mut topic).await.0.payload(), "led");
}

/// As with brokers before 2.8, or with a client that logs the id in another form.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_whose_id_is_not_told_is_refused_at_the_start() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(TOPIC, 1, 1).unwrap();
    cluster.apiversion(RDKafkaApiKey::Metadata, Some(0), Some(9)).unwrap();
    let mut topic = kafka(&cluster.bootstrap_servers()).await.topic(TOPIC).await.unwrap().group(GROUP);
    let error = topic.subscribe(subscribe_options(8)).await.unwrap_err().to_string();
    assert!(error.contains("the id of the topic `orders`") && error.contains("librdkafka 2."), "{error}");
}

async fn kafka(brokers: &str) -> Kafka {
    let wait = Duration::from_secs(60);
    let options = Kafka::options(brokers).property("topic.metadata.refresh.interval.ms", "300");
    tokio::time::timeout(wait, options.connect()).await.unwrap().unwrap()
}
