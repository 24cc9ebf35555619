//! Event buses of EventBridge, whose rules have a queue as their target, on moto.

use std::time::Duration;

use aws_sdk_eventbridge::types::Target;
use idem_conformance::sink::publish;
use idem_core::{Acker, Outgoing, Sink, SinkError, Source, StagedMessage};
use idem_sqs::{Envelope, EventBus, Sqs};
use uuid::Uuid;

use crate::common::{config, next, subscribe_options};

/// A bus and a queue for one test, named alike, and a rule between them.
struct World {
    url: String,
    name: String,
}

impl World {
    /// Returns `None` if there is no server to test against.
    async fn new() -> Option<Self> {
        let url = idem_conformance::server("MOTO_URL")?;
        let name = format!("idem-test-{}", Uuid::new_v4());
        let config = config(&url);
        let (sqs, events) = (aws_sdk_sqs::Client::new(&config), aws_sdk_eventbridge::Client::new(&config));
        let queue = sqs.create_queue().queue_name(&name).send().await.unwrap();
        let arn = aws_sdk_sqs::types::QueueAttributeName::QueueArn;
        let ask = sqs.get_queue_attributes().queue_url(queue.queue_url().unwrap()).attribute_names(arn.clone());
        let arn = ask.send().await.unwrap().attributes.unwrap()[&arn].clone();
        events.create_event_bus().name(&name).send().await.unwrap();
        let rule = events.put_rule().name(&name).event_bus_name(&name);
        rule.event_pattern(r#"{"source":["shop"]}"#).send().await.unwrap();
        let target = Target::builder().id("queue").arn(arn).build().unwrap();
        events.put_targets().rule(&name).event_bus_name(&name).targets(target).send().await.unwrap();
        Some(Self { url, name })
    }

    fn bus(&self) -> EventBus {
        EventBus::new(&config(&self.url), &self.name, "shop")
    }
}

fn staged(outgoing: Outgoing) -> StagedMessage {
    StagedMessage::new(Uuid::now_v7(), outgoing)
}

#[tokio::test]
async fn an_event_arrives_with_the_id_of_the_outbox() {
    let Some(world) = World::new().await else { return };
    let bus = world.bus();
    bus.open().await.unwrap();
    let messages: Vec<_> = (0..25)
        .map(|number| staged(Outgoing::new("paid", format!("{{\"n\":{number}}}")).event_type("OrderPaid")))
        .collect();
    let results = futures_util::future::join_all(messages.iter().map(|message| publish(&bus, message))).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");

    let queue = Sqs::new(&config(&world.url)).queue(&world.name).await.unwrap();
    let mut queue = queue.envelope(Envelope::EventBridge).wait_time(Duration::from_secs(1));
    assert!(queue.has_event_types());
    queue.subscribe(subscribe_options(10)).await.unwrap();
    let mut arrived = Vec::new();
    while arrived.len() < messages.len() {
        let (delivery, acker) = next(&mut queue).await;
        assert_eq!(delivery.event_type(), Some("OrderPaid"));
        assert_eq!(delivery.headers().get_str("source"), Some("shop"));
        assert!(delivery.published_at().is_some() && delivery.unrepresentable().is_none());
        let message = messages.iter().find(|message| Some(&*message.id().to_string()) == delivery.message_id());
        let payload: serde_json::Value = serde_json::from_slice(delivery.payload()).unwrap();
        let expected: serde_json::Value = serde_json::from_slice(message.unwrap().payload()).unwrap();
        assert_eq!(payload, expected);
        arrived.push(delivery);
        acker.ack().await.unwrap();
    }
}

#[tokio::test]
async fn a_message_that_is_no_event_fails_by_itself() {
    let Some(world) = World::new().await else { return };
    let bus = world.bus();
    let (bad, good) = (staged(Outgoing::new("paid", "[1]")), staged(Outgoing::new("paid", "{}")));
    let (refused, stored) = tokio::join!(publish(&bus, &bad), publish(&bus, &good));
    assert!(matches!(refused, Err(SinkError::Message(_))), "{refused:?}");
    stored.unwrap();
    bus.close().await;
}

#[tokio::test]
async fn a_bus_that_does_not_exist_is_named_at_the_start() {
    let Some(world) = World::new().await else { return };
    let bus = EventBus::new(&config(&world.url), "idem-test-none", "shop");
    let Err(SinkError::Message(error)) = bus.open().await else { panic!("it does not exist") };
    assert!(
        error.to_string().contains("`idem-test-none`") && error.to_string().contains("create-event-bus"),
        "{error}"
    );
}
