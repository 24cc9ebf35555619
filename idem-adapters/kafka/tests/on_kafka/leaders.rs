//! Partitions without a leader. Uses the mock cluster of the client, since a real cluster of one broker leads all
//! partitions or none.

use std::time::{Duration, Instant};

use crate::common::{GROUP, LONG, client, next, subscribe_options};
use idem_core::{Acker, Source};
use idem_kafka::{Kafka, Start};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use rdkafka::{Offset, TopicPartitionList};

const TOPIC: &str = "orders";

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_without_a_leader_is_stalled_and_the_others_go_on() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(TOPIC, 4, 1).unwrap();
    let brokers = cluster.bootstrap_servers();
    let producer: FutureProducer = client(&brokers).create().unwrap();
    let publish = async |partition: i32, payload: &str| publish(&producer, partition, payload).await;
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

/// It would have to skip messages there, or to deliver all of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_group_that_begins_with_what_comes_waits_for_the_leader_of_each_partition() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(TOPIC, 2, 1).unwrap();
    let brokers = cluster.bootstrap_servers();
    cluster.partition_leader(TOPIC, 1, None).unwrap();
    let mut topic = kafka(&brokers).await.topic(TOPIC).await.unwrap().group(GROUP).start(Start::Latest);
    let error = topic.subscribe(subscribe_options(8)).await.unwrap_err();
    let said = format!("{error:?}");
    assert!(said.contains("where topic `orders`") && said.contains("cannot be found out"), "{said}");
    cluster.partition_leader(TOPIC, 1, Some(1)).unwrap();
    topic.subscribe(subscribe_options(8)).await.unwrap();
}

/// An offset that does not exist would be committed, and its partition would stop.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_at_an_offset_waits_for_the_leader_of_each_partition_that_has_one() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(TOPIC, 2, 1).unwrap();
    let brokers = cluster.bootstrap_servers();
    cluster.partition_leader(TOPIC, 1, None).unwrap();
    let topic = kafka(&brokers).await.topic(TOPIC).await.unwrap().group(GROUP);
    let mut topic = topic.start_at(TOPIC, 0, 7).start_at(TOPIC, 1, 0);
    for said in ["cannot be found out", "has 0 to 0"] {
        let error = topic.subscribe(subscribe_options(8)).await.unwrap_err();
        assert!(format!("{error:?}").contains(said), "{error:?}");
        cluster.partition_leader(TOPIC, 1, Some(1)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_a_broker_refuses_to_read_is_tried_again() {
    is_tried_again(RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN).await;
}

/// The subscription must not end: the partition would move to another member and end that one too.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_of_a_forbidden_topic_is_tried_again_by_the_same_member() {
    is_tried_again(RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED).await;
}

/// As when an operator takes a permission away: the other topics of the subscription go on, and so does this one later.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_forbidden_ends_no_subscription_and_goes_on_when_it_is_allowed() {
    const OTHER: &str = "payments";
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(TOPIC, 1, 1).unwrap();
    cluster.create_topic(OTHER, 1, 1).unwrap();
    let brokers = cluster.bootstrap_servers();
    let producer: FutureProducer = client(&brokers).create().unwrap();
    let mut topic = kafka(&brokers).await.topics([TOPIC, OTHER]).await.unwrap().group(GROUP);
    topic.subscribe(subscribe_options(8)).await.unwrap();
    publish(&producer, 0, "before").await;
    next(&mut topic).await.1.ack().await.unwrap();
    // A commit of its offset that is refused as well would bring it again.
    until_committed(&brokers, 0, 1).await;
    cluster.topic_error(TOPIC, RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED).unwrap();
    // The topics are looked up once a second.
    for n in 0..20 {
        let payload = n.to_string();
        let record = FutureRecord::<(), _>::to(OTHER).partition(0).payload(&payload);
        producer.send(record, LONG).await.unwrap();
        let (delivery, acker) = next(&mut topic).await;
        assert_eq!(delivery.payload(), payload.as_str());
        acker.ack().await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    cluster.topic_error(TOPIC, RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR).unwrap();
    publish(&producer, 0, "allowed again").await;
    let (mut delivery, mut acker) = next(&mut topic).await;
    // A member whose session has ended on a busy machine could not ask for its offset meanwhile, and begins again.
    while delivery.payload() == "before" {
        acker.ack().await.unwrap();
        (delivery, acker) = next(&mut topic).await;
    }
    assert_eq!(delivery.payload(), "allowed again");
    acker.ack().await.unwrap();
    until_committed(&brokers, 0, 2).await;
}

async fn is_tried_again(error: RDKafkaRespErr) {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(TOPIC, 1, 1).unwrap();
    let brokers = cluster.bootstrap_servers();
    let producer: FutureProducer = client(&brokers).create().unwrap();
    publish(&producer, 0, "before").await;
    let mut topic = kafka(&brokers).await.topic(TOPIC).await.unwrap().group(GROUP);
    topic.subscribe(subscribe_options(8)).await.unwrap();
    next(&mut topic).await.1.ack().await.unwrap();
    cluster.request_errors(RDKafkaApiKey::Fetch, &[error; 2]);
    for payload in ["after", "and on"] {
        publish(&producer, 0, payload).await;
        let (delivery, acker) = next(&mut topic).await;
        assert_eq!(delivery.payload(), payload);
        acker.ack().await.unwrap();
    }
    until_committed(&brokers, 0, 3).await;
}

/// As with brokers before 2.8, or with a client that logs the id in another form.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_whose_id_is_not_known_is_refused_at_the_start() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(TOPIC, 1, 1).unwrap();
    cluster.apiversion(RDKafkaApiKey::Metadata, Some(0), Some(9)).unwrap();
    let mut topic = kafka(&cluster.bootstrap_servers()).await.topic(TOPIC).await.unwrap().group(GROUP);
    let error = topic.subscribe(subscribe_options(8)).await.unwrap_err().to_string();
    assert!(error.contains("the id of the topic `orders`") && error.contains("librdkafka 2."), "{error}");
}

async fn publish(producer: &FutureProducer, partition: i32, payload: &str) {
    let record = FutureRecord::<(), _>::to(TOPIC).partition(partition).payload(payload);
    producer.send(record, LONG).await.unwrap();
}

async fn until_committed(brokers: &str, partition: i32, offset: i64) {
    let mut client = client(brokers);
    let member: BaseConsumer = client.set("group.id", GROUP).create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition(TOPIC, partition);
    let wait = async {
        while member.committed_offsets(list.clone(), LONG).unwrap().elements()[0].offset() != Offset::Offset(offset) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("the offset was not committed");
}

async fn kafka(brokers: &str) -> Kafka {
    let wait = Duration::from_secs(60);
    let options = Kafka::options(brokers).property("topic.metadata.refresh.interval.ms", "300");
    tokio::time::timeout(wait, options.connect()).await.unwrap().unwrap()
}
