//! The contents of deliveries.

use std::time::{Duration, SystemTime};

use crate::common;
use crate::common::{GROUP, LONG, World, next, options, subscribe_options};
use idem_core::{Acker, DeliveryOrder, ReplayWindow, Source, SubscribeOptions};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::FutureRecord;

#[tokio::test]
async fn a_record_arrives_with_all_that_kafka_says_of_it() {
    let Some(world) = World::with(2).await else { return };
    let headers = OwnedHeaders::new()
        .insert(Header { key: "trace", value: Some("00-ab") })
        .insert(Header { key: "raw", value: Some(&[0u8, 0xff][..]) })
        .insert(Header { key: "trace", value: Some("second") })
        .insert(Header::<&[u8]> { key: "null", value: None });
    world.publish_to(1, "before").await;
    let record = FutureRecord::<[u8], [u8]>::to(&world.topic).partition(1).timestamp(1_700_000_000_123);
    world.send(record.payload(b"x").key(b"k").headers(headers)).await;
    let mut topic = world.open(4).await;
    next(&mut topic).await;
    let (delivery, _) = next(&mut topic).await;
    assert_eq!((delivery.payload().as_ref(), delivery.is_tombstone()), (&b"x"[..], false));
    let expected: [(&str, &[u8]); 4] = [("trace", b"00-ab"), ("raw", &[0, 0xff]), ("trace", b"second"), ("null", b"")];
    assert_eq!(delivery.headers().iter().collect::<Vec<_>>(), expected);
    assert_eq!(delivery.source(), world.topic);
    assert_eq!(delivery.position(), Some(format!("{}/1/1@1700000000123", world.topic).as_str()));
    // The timestamp is the producer's.
    let made = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
    assert_eq!((delivery.published_at(), delivery.produced_at()), (None, Some(made)));
    assert_eq!((delivery.partition_key(), delivery.subject(), delivery.content_type()), (Some(&b"k"[..]), None, None));
    assert_eq!((delivery.message_id(), delivery.event_type(), delivery.attempt()), (None, None, 1));
}

#[tokio::test]
async fn the_brokers_own_clock_tells_when_a_record_was_published() {
    let Some(world) = World::empty().await else { return };
    world.create(1, &[("message.timestamp.type", "LogAppendTime")]).await;
    let before = SystemTime::now() - Duration::from_secs(1);
    let record = FutureRecord::<[u8], [u8]>::to(&world.topic).partition(0).timestamp(7);
    world.send(record.payload(b"x")).await;
    let (delivery, _) = next(&mut world.open(1).await).await;
    let published = delivery.published_at().unwrap();
    assert_eq!(delivery.produced_at(), None);
    assert!(published > before && published < SystemTime::now() + Duration::from_secs(1), "{published:?}");
}

/// A header name that is not UTF-8, as producers in other languages can write it.
#[allow(unsafe_code, reason = "rdkafka takes a name as text and hands its bytes on")]
fn no_text(bytes: &[u8]) -> &str {
    // SAFETY: nothing reads it as text; rdkafka copies the bytes.
    unsafe { std::str::from_utf8_unchecked(bytes) }
}

#[tokio::test]
async fn a_header_name_that_is_not_text_is_undeliverable_and_its_neighbours_arrive() {
    let Some(world) = World::new().await else { return };
    world.publish("before").await;
    let headers = OwnedHeaders::new().insert(Header { key: no_text(&[0xfe, b'o']), value: Some("v") });
    let record = FutureRecord::<[u8], [u8]>::to(&world.topic).partition(0);
    world.send(record.payload(b"odd").headers(headers)).await;
    world.publish("after").await;
    let mut topic = world.open(3).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (delivery, acker) = next(&mut topic).await;
        let undeliverable = delivery.unrepresentable().map(str::to_owned);
        seen.push((delivery.payload().clone(), undeliverable));
        acker.ack().await.unwrap();
    }
    let why = Some("the name of header 0 is not UTF-8: its bytes are fe6f.".to_owned());
    assert_eq!(seen, [("before".into(), None), ("odd".into(), why), ("after".into(), None)]);
    world.until_committed(0, 3).await;
}

#[tokio::test]
async fn partitions_take_turns_and_each_has_one_delivery_of_an_order_out() {
    let Some(world) = World::with(3).await else { return };
    for partition in 0..3 {
        for n in 0..20 {
            world.publish_to(partition, format!("{partition}/{n}")).await;
        }
    }
    let mut topic = world.topic().await;
    topic.subscribe(subscribe_options(100).with_order(DeliveryOrder::Partition)).await.unwrap();
    let mut heads = Vec::new();
    for _ in 0..3 {
        heads.push(next(&mut topic).await);
    }
    heads.sort_by(|a, b| a.0.payload().cmp(b.0.payload()));
    assert_eq!(heads.iter().map(|(head, _)| head.payload().as_ref()).collect::<Vec<_>>(), [b"0/0", b"1/0", b"2/0"]);
    assert!(tokio::time::timeout(Duration::from_millis(300), topic.next()).await.is_err(), "the rest waits its turn");
    // The first delivery of partition 0 stays unfinished. The other partitions continue to their ends.
    let _head = heads.remove(0);
    for (_, acker) in heads {
        acker.ack().await.unwrap();
    }
    for _ in 0..38 {
        let (delivery, acker) = next(&mut topic).await;
        assert!(!delivery.payload().starts_with(b"0/"));
        acker.ack().await.unwrap();
    }
    world.until_committed(1, 20).await;
    world.until_committed(2, 20).await;
    assert_eq!(world.committed(0), None);
}

#[tokio::test]
async fn a_tombstone_is_not_an_empty_payload() {
    let Some(world) = World::new().await else { return };
    world.send(FutureRecord::<[u8], [u8]>::to(&world.topic).partition(0).key(b"k")).await;
    world.send(FutureRecord::<[u8], [u8]>::to(&world.topic).partition(0).key(b"k").payload(b"")).await;
    let mut topic = world.open(2).await;
    let (first, second) = (next(&mut topic).await.0, next(&mut topic).await.0);
    assert!(first.is_tombstone() && first.payload().is_empty());
    assert_eq!(first.partition_key(), Some(&b"k"[..]), "it tells what was deleted");
    assert!(!second.is_tombstone() && second.payload().is_empty());
}

#[tokio::test]
async fn large_and_many_records_arrive_each_once_and_in_order() {
    let Some(world) = World::with(2).await else { return };
    let (count, large) = (2_000usize, vec![b'x'; (1 << 20) + 1]);
    let mut sent = Vec::new();
    for n in 0..count {
        let payload = if n % 500 == 7 { large.clone() } else { n.to_string().into_bytes() };
        let partition = (n % 2) as i32;
        let record = FutureRecord::<[u8], _>::to(&world.topic).partition(partition).payload(&payload);
        sent.push(world.producer.send_result(record).unwrap());
    }
    for sent in sent {
        sent.await.unwrap().unwrap();
    }
    // The window is much smaller, so that partitions wait for room again and again.
    let mut topic = world.topic().await.window(16);
    topic.subscribe(subscribe_options(8)).await.unwrap();
    let mut offsets = [Vec::new(), Vec::new()];
    for _ in 0..count {
        let (delivery, acker) = next(&mut topic).await;
        let position = delivery.position().unwrap().rsplit_once('@').unwrap().0.to_owned();
        let mut parts = position.rsplit('/');
        let (offset, partition) = (parts.next().unwrap(), parts.next().unwrap());
        offsets[partition.parse::<usize>().unwrap()].push(offset.parse::<usize>().unwrap());
        acker.ack().await.unwrap();
    }
    for offsets in offsets {
        assert!(offsets == (0..count / 2).collect::<Vec<_>>(), "{offsets:?}");
    }
    world.until_committed(0, 1000).await;
    world.until_committed(1, 1000).await;
}

#[tokio::test]
async fn an_ordering_key_is_a_partition_or_a_key_and_records_without_a_key_share_one() {
    let Some(world) = World::new().await else { return };
    for key in [Some("a"), Some("b"), None, Some("a"), None] {
        let record = FutureRecord::<[u8], [u8]>::to(&world.topic).partition(0).payload(b"x");
        let record = if let Some(key) = key { record.key(key.as_bytes()) } else { record };
        world.send(record).await;
    }
    let mut orders = Vec::new();
    for order in [DeliveryOrder::Key, DeliveryOrder::Partition, DeliveryOrder::None] {
        let mut topic = world.topic().await.group(format!("{}-{order:?}", world.group));
        topic.subscribe(subscribe_options(5).with_order(order)).await.unwrap();
        let mut seen = Vec::new();
        for _ in 0..5 {
            let (delivery, acker) = next(&mut topic).await;
            seen.push((delivery.position().unwrap().to_owned(), delivery.ordering_key()));
            acker.ack().await.unwrap();
        }
        seen.sort();
        orders.push(seen.into_iter().map(|(_, key)| key).collect::<Vec<_>>());
        topic.close().await;
    }
    let [keys, partitions, none] = &orders[..] else { unreachable!() };
    assert!(keys[0] == keys[3] && keys[2] == keys[4], "{keys:?}");
    assert!(keys[0] != keys[1] && keys[0] != keys[2] && keys[1] != keys[2], "{keys:?}");
    assert!(partitions.iter().all(|key| *key == partitions[0] && key.is_some()), "{partitions:?}");
    assert!(none.iter().all(Option::is_none), "{none:?}");
}

#[tokio::test]
async fn the_group_is_the_workers_name_unless_another_one_was_given() {
    let Some(world) = World::new().await else { return };
    world.publish("x").await;
    let mut named = world.kafka().await.topic(&world.topic).await.unwrap();
    named.subscribe(SubscribeOptions::new(&world.group, 1)).await.unwrap();
    next(&mut named).await.1.ack().await.unwrap();
    world.until_committed(0, 1).await;
    named.close().await;
    let mut other = world.topic().await.group(format!("other-{GROUP}-{}", world.topic));
    other.subscribe(subscribe_options(1)).await.unwrap();
    assert_eq!(next(&mut other).await.0.payload(), "x");
}

#[tokio::test]
async fn messages_of_a_transaction_that_was_aborted_never_come() {
    use rdkafka::producer::{FutureProducer, Producer};
    let Some(world) = World::new().await else { return };
    let mut client = common::client(&world.brokers);
    let producer: FutureProducer = client.set("transactional.id", &world.topic).create().unwrap();
    let transactions = producer.clone();
    let topic = world.topic.clone();
    let publish = move || {
        transactions.init_transactions(LONG).unwrap();
        for (payload, commit) in [("aborted", false), ("committed", true), ("aborted", false), ("last", true)] {
            transactions.begin_transaction().unwrap();
            let record = FutureRecord::<[u8], _>::to(&topic).partition(0).payload(payload.as_bytes());
            drop(transactions.send_result(record).unwrap());
            // A record still buffered here when a transaction is aborted would never be sent.
            transactions.flush(LONG).unwrap();
            if commit { transactions.commit_transaction(LONG) } else { transactions.abort_transaction(LONG) }.unwrap();
        }
    };
    tokio::task::spawn_blocking(publish).await.unwrap();
    let mut topic = world.open(1).await;
    for expected in ["committed", "last"] {
        let (delivery, acker) = next(&mut topic).await;
        assert_eq!(delivery.payload(), expected);
        acker.ack().await.unwrap();
    }
    drop(producer);
}

/// The markers and the records of an aborted transaction at the end of a partition are never delivered.
#[tokio::test]
async fn the_lag_and_the_committed_offset_count_what_a_transaction_leaves_behind() {
    use rdkafka::producer::{FutureProducer, Producer};
    let Some(world) = World::with(2).await else { return };
    let mut client = common::client(&world.brokers);
    let producer: FutureProducer = client.set("transactional.id", &world.topic).create().unwrap();
    let name = world.topic.clone();
    let publish = move || {
        producer.init_transactions(LONG).unwrap();
        for (partition, commit) in [(0, true), (0, false), (1, false)] {
            producer.begin_transaction().unwrap();
            let record = FutureRecord::<[u8], _>::to(&name).partition(partition).payload(&b"x"[..]);
            drop(producer.send_result(record).unwrap());
            producer.flush(LONG).unwrap();
            if commit { producer.commit_transaction(LONG) } else { producer.abort_transaction(LONG) }.unwrap();
        }
    };
    tokio::task::spawn_blocking(publish).await.unwrap();
    let mut topic = world.open(1).await;
    let held = next(&mut topic).await.1;
    // Longer than between two commits: nothing may pass what is not finished.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(world.committed(0), None);
    held.ack().await.unwrap();
    for partition in [0, 1] {
        world.until_committed(partition, world.range(partition).1).await;
    }
    let lag = topic.lag().unwrap();
    assert_eq!(lag.call().await.unwrap(), [(world.topic.as_str().into(), 0)]);
}

#[tokio::test]
async fn the_topics_retention_is_how_far_back_kafka_can_deliver_again() {
    let Some(world) = World::empty().await else { return };
    world.create(1, &[("retention.ms", "86400000")]).await;
    let mut topic = world.open(1).await;
    assert_eq!(topic.replay_window(), ReplayWindow::Within(Duration::from_secs(86_400)));
    for (name, value) in [("retention.ms", "-1"), ("cleanup.policy", "compact")] {
        world.set(name, value).await;
        topic.subscribe(subscribe_options(1)).await.unwrap();
        assert_eq!(topic.replay_window(), ReplayWindow::Unlimited, "{name}={value}");
    }
}

#[tokio::test]
async fn a_setting_that_deletes_unhandled_records_is_warned_about() {
    let Some(world) = World::empty().await else { return };
    let settings = [("retention.ms", "60000"), ("retention.bytes", "1000000"), ("cleanup.policy", "compact,delete")];
    world.create(1, &settings).await;
    let (text, subscriber) = idem_conformance::captured();
    let _guard = tracing::subscriber::set_default(subscriber);
    world.open(1).await;
    let log = text.to_string();
    for setting in ["retention.ms=60000", "retention.bytes=1000000", "cleanup.policy=compact"] {
        let is_it = |line: &str| ["WARN", &world.topic, setting].iter().all(|part| line.contains(part));
        assert!(log.lines().any(is_it), "{setting}: {log}");
    }
}

#[tokio::test]
async fn a_static_member_comes_back_to_its_partitions() {
    let Some(world) = World::new().await else { return };
    let topic = async || options(&world.brokers).connect().await.unwrap().topic(&world.topic).await.unwrap();
    let mut first = topic().await.group(&world.group).static_member("one");
    first.subscribe(subscribe_options(1)).await.unwrap();
    world.publish("a").await;
    next(&mut first).await.1.ack().await.unwrap();
    first.close().await;
    world.publish("b").await;
    let mut again = topic().await.group(&world.group).static_member("one");
    again.subscribe(subscribe_options(1)).await.unwrap();
    assert_eq!(next(&mut again).await.0.payload(), "b");
}
