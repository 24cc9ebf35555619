//! The conformance suite for sinks, on queues of SQS, and what only SQS has.

use std::time::Duration;

use idem_conformance::Proxy;
use idem_conformance::sink::{World, message, publish};
use idem_core::{Acker, Delivery, DeliveryOrder, Outgoing, Source, StagedMessage};
use idem_sqs::{Queue, Queues, Sqs};
use uuid::Uuid;

use crate::common::{self, config, next, nothing_for, subscribe_options};

/// A queue, and a relay in front of its server.
struct OneQueue {
    world: common::World,
    relay: Proxy,
}

impl World for OneQueue {
    type Sink = Queues;
    type Source = Queue;

    const TOO_LARGE: usize = 1024 * 1024 + 1;

    async fn make() -> Option<Self> {
        let world = common::World::new().await?;
        let relay = Proxy::start(&world.url).await;
        Some(Self { world, relay })
    }

    async fn sink(&self) -> Queues {
        Sqs::new(&config(&self.relay.url(&self.world.url))).queues("idem-")
    }

    async fn cloud_events(&self, source: &str) -> Queues {
        self.sink().await.cloud_events(source)
    }

    async fn missing(&self) -> Option<(Queues, String)> {
        None
    }

    async fn source(&self) -> Queue {
        self.world.source().await
    }

    fn to(&self) -> String {
        self.world.queue.strip_prefix("idem-").unwrap().to_owned()
    }

    fn unroutable(&self) -> String {
        "test-none".to_owned()
    }

    fn unpublishable(&self) -> Vec<(Outgoing, &'static str)> {
        let fit = || Outgoing::new(self.to(), "{}");
        vec![
            (Outgoing::new("a b", "{}"), "is not a queue"),
            (fit().header("a:b", "1"), "the header name \"a:b\""),
            (fit().header("a", "1").header("a", "2"), "several headers `a`"),
            ((0..9).fold(fit(), |fit, number| fit.header(format!("h{number}"), "1")), "11 attributes"),
        ]
    }

    fn event_type(delivery: &Delivery) -> Option<String> {
        let headers = delivery.headers();
        headers.get_str("event-type").or_else(|| headers.get_str("ce-type")).map(ToOwned::to_owned)
    }

    fn key(delivery: &Delivery) -> Option<Vec<u8>> {
        delivery.headers().get("idem-key").map(<[u8]>::to_vec)
    }

    async fn cut(&self) {
        self.relay.cut();
    }

    async fn hold(&self, held: bool) {
        self.relay.hold(held);
    }
}

idem_conformance::sink_suite!(OneQueue);

/// Within five minutes, a FIFO queue stores a message once.
#[tokio::test]
async fn a_copy_of_a_message_in_a_fifo_queue_is_confirmed_and_not_stored() {
    let Some(world) = common::World::fifo().await else { return };
    let sink = world.sqs().queues("");
    let staged = |number: u8| {
        let outgoing = Outgoing::new(&world.queue, number.to_string()).key("order 7");
        StagedMessage::new(Uuid::now_v7(), outgoing)
    };
    let messages = [staged(1), staged(2), staged(1)];
    for message in messages.iter().chain(&messages) {
        publish(&sink, message).await.unwrap();
    }
    let mut queue = world.source().await;
    queue.subscribe(subscribe_options(10).with_order(DeliveryOrder::Key)).await.unwrap();
    for message in &messages {
        let (delivery, acker) = next(&mut queue).await;
        assert_eq!(delivery.payload(), message.payload());
        assert_eq!(delivery.message_id(), Some(&*message.id().to_string()));
        acker.ack().await.unwrap();
    }
    nothing_for(&mut queue, Duration::from_millis(100)).await;
}

#[tokio::test]
async fn messages_at_the_same_time_are_few_requests() {
    let Some(world) = common::World::new().await else { return };
    let relay = Proxy::start(&world.url).await;
    let sink = Sqs::new(&config(&relay.url(&world.url))).queues("");
    publish(&sink, &message(&world.queue)).await.unwrap();
    let messages: Vec<_> = (0..100).map(|_| message(&world.queue)).collect();
    let results = futures_util::future::join_all(messages.iter().map(|message| publish(&sink, message))).await;
    assert!(results.iter().all(Result::is_ok));
    assert!(relay.connections() <= 12, "{} requests were under way at the same time", relay.connections());
    assert_eq!(world.ready().await, 101);
}
