//! The in-process broker beyond the suite: faults, signals.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use idem_core::{Acker, Settled, Source, SubscribeOptions};
use idem_test::{Broker, Publication, Queue};

fn subscribe_options(max_unsettled: u16) -> SubscribeOptions {
    SubscribeOptions::new("billing", max_unsettled)
}

async fn open(broker: &Broker, max_unsettled: u16) -> Queue {
    let mut queue = broker.queue("orders");
    queue.subscribe(subscribe_options(max_unsettled)).await.unwrap();
    queue
}

#[tokio::test]
async fn a_lost_ack_is_answered_sent_and_its_delivery_comes_back_with_the_loss() {
    let broker = Broker::new();
    broker.publish("orders", "a");
    broker.lose_acks(1);
    let mut queue = open(&broker, 1).await;
    let (_, acker) = queue.next().await.unwrap();
    assert_eq!(acker.ack().await.unwrap(), Settled::Sent);
    assert_eq!(queue.counts().unsettled, 1);

    broker.disconnect();
    assert!(queue.next().await.is_err());
    queue.subscribe(subscribe_options(1)).await.unwrap();
    let (again, acker) = queue.next().await.unwrap();
    assert!(again.redelivered());
    assert_eq!(acker.ack().await.unwrap(), Settled::Confirmed, "only so many acks are lost as were asked for");
}

#[tokio::test]
async fn a_returned_message_takes_its_old_place() {
    let broker = Broker::new();
    ["a", "b", "c"].into_iter().for_each(|payload| broker.publish("orders", payload));
    let mut queue = open(&broker, 3).await;
    let (_, _a) = queue.next().await.unwrap();
    let (_, b) = queue.next().await.unwrap();
    b.release().await.unwrap();

    let mut order = Vec::new();
    for _ in 0..2 {
        let (delivery, acker) = queue.next().await.unwrap();
        order.push((delivery.payload().clone(), delivery.redelivered()));
        acker.ack().await.unwrap();
    }
    assert_eq!(order, [("b".into(), true), ("c".into(), false)]);
}

#[tokio::test]
async fn delivered_twice_is_two_deliveries_in_a_row_without_a_mark() {
    let broker = Broker::new();
    broker.publish("orders", Publication::new("a").message_id("7"));
    broker.publish("orders", "b");
    broker.publish("orders", "c");
    broker.deliver_twice(2);
    let mut queue = open(&broker, 5).await;
    let mut deliveries = Vec::new();
    for _ in 0..5 {
        let (delivery, acker) = queue.next().await.unwrap();
        assert!(!delivery.redelivered());
        deliveries.push((delivery.payload().clone(), delivery.message_id().is_some()));
        acker.ack().await.unwrap();
    }
    let expected = [("a", true), ("a", true), ("b", false), ("b", false), ("c", false)];
    assert_eq!(deliveries, expected.map(|(payload, id)| (payload.into(), id)));
    broker.idle().await;
}

#[tokio::test]
async fn a_refused_connection_is_an_error_of_open() {
    let broker = Broker::new();
    let mut queue = broker.queue("orders");
    broker.refuse_connections(true);
    assert!(queue.subscribe(subscribe_options(1)).await.is_err());
    assert!(queue.next().await.is_err());
    broker.refuse_connections(false);
    queue.subscribe(subscribe_options(1)).await.unwrap();
}

#[tokio::test]
async fn dropping_a_source_releases_what_it_has_not_settled() {
    let broker = Broker::new();
    broker.publish("orders", "a");
    let mut queue = open(&broker, 1).await;
    let (_, _acker) = queue.next().await.unwrap();
    drop(queue);
    let (again, _) = open(&broker, 1).await.next().await.unwrap();
    assert!(again.redelivered());
}

#[tokio::test]
async fn the_signals_come_when_it_is_so() {
    let broker = Broker::new();
    let watched = broker.queue("orders");
    broker.idle().await;
    broker.publish_json("orders", &[1, 2]).unwrap();
    broker.publish("orders", "b");
    let consume = tokio::spawn({
        let broker = broker.clone();
        async move {
            let mut queue = open(&broker, 1).await;
            for _ in 0..2 {
                let (_, acker) = queue.next().await.unwrap();
                acker.ack().await.unwrap();
            }
            queue
        }
    });
    watched.settled(2).await;
    watched.delivered(2).await;
    watched.idle().await;
    broker.idle().await;
    let counts = watched.counts();
    assert_eq!((counts.published, counts.deliveries, counts.acks), (2, 2, 2));
    assert_eq!((counts.redeliveries, counts.releases, counts.ready, counts.unsettled), (0, 0, 0, 0));
    consume.await.unwrap();
}
