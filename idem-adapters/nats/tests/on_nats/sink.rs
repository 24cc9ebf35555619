//! The conformance suite for sinks, on NATS JetStream, and what only NATS has.

use std::time::Duration;

use crate::common;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy};
use idem_conformance::Proxy;
use idem_conformance::sink::{World, message, publish};
use idem_core::{Delivery, Outgoing, Sink, SinkError, StagedMessage};
use idem_nats::{JetStream, Nats, Stream};
use tokio::time::timeout;
use uuid::Uuid;

/// A stream that takes the subjects `<name>.orders.>`, and a relay in front of its server.
struct OneStream {
    world: common::World,
    relay: Proxy,
}

impl OneStream {
    async fn jetstream(&self, prefix: &str) -> JetStream {
        Nats::connect(self.relay.address()).await.unwrap().jetstream(prefix)
    }

    fn prefix(&self) -> String {
        format!("{}.", self.world.stream)
    }
}

impl World for OneStream {
    type Sink = JetStream;
    type Source = Stream;

    /// One byte more than the test server takes.
    const TOO_LARGE: usize = 8 * 1024 * 1024 + 1;

    async fn make() -> Option<Self> {
        let world = common::World::empty().await?;
        world.make(|config| config.subjects = vec![format!("{}.orders.>", config.name)]).await;
        let relay = Proxy::start(&world.url).await;
        Some(Self { world, relay })
    }

    async fn sink(&self) -> JetStream {
        self.jetstream(&self.prefix()).await
    }

    async fn cloud_events(&self, source: &str) -> JetStream {
        self.sink().await.cloud_events(source)
    }

    async fn missing(&self) -> Option<(JetStream, String)> {
        let prefix = format!("{}-none.", self.world.stream);
        Some((self.jetstream(&prefix).await, prefix))
    }

    async fn source(&self) -> Stream {
        self.world.source().await
    }

    fn to(&self) -> String {
        "orders.paid".to_owned()
    }

    fn unroutable(&self) -> String {
        "invoices.paid".to_owned()
    }

    fn unpublishable(&self) -> Vec<(Outgoing, &'static str)> {
        let fit = || Outgoing::new(self.to(), "{}");
        vec![
            (Outgoing::new("orders. paid", "{}"), "is not a subject"),
            (Outgoing::new("orders..paid", "{}"), "is not a subject"),
            (Outgoing::new("orders.*", "{}"), "is not a subject"),
            (fit().header("Nats-Rollup", "all"), "`Nats-Rollup`"),
            (fit().header("a:b", ""), "the header name \"a:b\""),
            (fit().header("\u{e9}", ""), "the header name"),
            (fit().header("a", "1\r\n2"), "the value of the header `a`"),
            (fit().header("a", vec![0xff]), "the value of the header `a`"),
        ]
    }

    fn event_type(delivery: &Delivery) -> Option<String> {
        delivery.headers().get_str("event-type").map(ToOwned::to_owned)
    }

    fn key(delivery: &Delivery) -> Option<Vec<u8>> {
        let encoded = delivery.headers().get_str("idem-key")?;
        Some(percent_encoding::percent_decode_str(encoded).collect())
    }

    async fn cut(&self) {
        self.relay.cut();
    }

    async fn hold(&self, held: bool) {
        self.relay.hold(held);
    }
}

idem_conformance::sink_suite!(OneStream);

pub(crate) async fn opened(sink: JetStream) -> JetStream {
    timeout(common::LONG, sink.open()).await.unwrap().unwrap();
    sink
}

/// The stream recognizes a copy by its id, and that is a success.
#[tokio::test]
async fn a_copy_is_confirmed_and_stored_once() {
    let Some(world) = OneStream::make().await else { return };
    let sink = opened(world.sink().await).await;
    let message = message("orders.paid");
    publish(&sink, &message).await.unwrap();
    sink.close().await;
    // Another connection, as after a crash.
    publish(&sink, &message).await.unwrap();
    assert_eq!(world.messages().await, 1);
    sink.close().await;
}

/// A stream compares ids, whatever the subjects are.
#[tokio::test]
async fn two_messages_with_one_id_and_two_subjects_are_both_stored() {
    let Some(world) = OneStream::make().await else { return };
    let sink = opened(world.sink().await).await;
    let id = Uuid::now_v7();
    for to in ["orders.paid", "orders.shipped"] {
        publish(&sink, &StagedMessage::new(id, Outgoing::new(to, "{}"))).await.unwrap();
    }
    assert_eq!(world.messages().await, 2);
    sink.close().await;
}

/// A message for a stream that was deleted fails by itself, and is published once the stream is there again.
#[tokio::test]
async fn a_stream_that_is_deleted_refuses_its_messages_only() {
    let Some(world) = OneStream::make().await else { return };
    let other = common::World::new().await.unwrap();
    let sink = opened(world.jetstream("").await).await;
    let (lost, kept) = (format!("{}.orders.paid", world.world.stream), other.subject());
    publish(&sink, &message(&lost)).await.unwrap();
    world.world.delete().await;
    let (refused, passed) = (message(&lost), message(&kept));
    let (refused, passed) = tokio::join!(publish(&sink, &refused), publish(&sink, &passed));
    let error = refused.unwrap_err();
    assert!(matches!(error, SinkError::Message(_)) && error.to_string().contains(&lost), "{error}");
    passed.unwrap();
    world.world.make(|config| config.subjects = vec![format!("{}.orders.>", config.name)]).await;
    publish(&sink, &message(&lost)).await.unwrap();
    sink.close().await;
}

/// A stream that is full and refuses new messages is not the fault of the message.
#[tokio::test]
async fn a_full_stream_is_a_failure_of_the_broker() {
    let Some(world) = common::World::empty().await else { return };
    let full = |config: &mut Config| {
        (config.max_messages, config.discard) = (1, DiscardPolicy::New);
    };
    world.make(full).await;
    let sink = opened(world.nats().await.jetstream(format!("{}.", world.stream))).await;
    publish(&sink, &message("x")).await.unwrap();
    let error = publish(&sink, &message("x")).await.unwrap_err();
    assert!(matches!(error, SinkError::Broker(_)) && error.to_string().contains(&world.subject()), "{error}");
    sink.close().await;
}

/// A relay asks for it once, before it publishes.
#[tokio::test]
async fn the_limit_is_known_once_the_sink_is_open() {
    let Some(world) = OneStream::make().await else { return };
    let sink = opened(world.sink().await).await;
    let limit = sink.limit();
    assert!(limit.is_some_and(|limit| limit < OneStream::TOO_LARGE), "{limit:?}");
    sink.close().await;
}

/// A message over the limit of its stream fails, and the next one is stored.
#[tokio::test]
async fn a_message_over_the_limit_of_its_stream_is_refused() {
    let Some(world) = common::World::empty().await else { return };
    world.make(|config| config.max_message_size = 1000).await;
    let sink = opened(world.nats().await.jetstream(format!("{}.", world.stream))).await;
    let large = StagedMessage::new(Uuid::now_v7(), Outgoing::new("x", vec![b'x'; 2000]));
    let error = publish(&sink, &large).await.unwrap_err();
    assert!(matches!(error, SinkError::Message(_)) && error.to_string().contains(&world.subject()), "{error}");
    publish(&sink, &message("x")).await.unwrap();
    sink.close().await;
}

/// A subscriber that answers instead of a stream confirms nothing.
#[tokio::test]
async fn an_answer_that_is_not_of_a_stream_confirms_nothing() {
    use futures_util::StreamExt;
    let Some(world) = OneStream::make().await else { return };
    let client = async_nats::connect(&world.world.url).await.unwrap();
    let mut requests = client.subscribe(format!("{}invoices.paid", world.prefix())).await.unwrap();
    client.flush().await.unwrap();
    let sink = opened(world.sink().await).await;
    let answering = async {
        let request = timeout(common::LONG, requests.next()).await.unwrap().unwrap();
        client.publish(request.reply.unwrap(), "thanks".into()).await.unwrap();
    };
    let message = message("invoices.paid");
    let (result, ()) = tokio::join!(publish(&sink, &message), answering);
    let error = result.unwrap_err();
    assert!(matches!(error, SinkError::Message(_)) && error.to_string().contains("not by a stream"), "{error}");
    sink.close().await;
}

/// The server reports nothing about a subject that a subscriber hears, although no stream has it.
#[tokio::test]
async fn a_subscriber_does_not_hide_that_no_stream_has_the_subject() {
    let Some(world) = OneStream::make().await else { return };
    let client = async_nats::connect(&world.world.url).await.unwrap();
    let subject = format!("{}invoices.paid", world.prefix());
    let _hears = client.subscribe(subject.clone()).await.unwrap();
    client.flush().await.unwrap();
    let sink = opened(world.sink().await).await;
    let message = message("invoices.paid");
    // A relay waits for 10 seconds.
    let error = timeout(Duration::from_secs(10), sink.publish(&message)).await.unwrap().unwrap_err();
    assert!(matches!(error, SinkError::Message(_)) && error.to_string().contains(&subject), "{error}");
    sink.close().await;
}

/// A stream with the retention `interest` confirms a message without storing it if no consumer wants it, and one with
/// `no_ack` confirms nothing.
#[tokio::test]
async fn a_stream_whose_confirm_is_worth_nothing_is_warned_about() {
    let Some(world) = common::World::empty().await else { return };
    let set = |config: &mut Config| (config.retention, config.no_ack) = (RetentionPolicy::Interest, true);
    world.make(set).await;
    let sink = world.nats().await.jetstream(format!("{}.", world.stream));
    let (text, subscriber) = idem_conformance::captured();
    let guard = tracing::subscriber::set_default(subscriber);
    sink.open().await.unwrap();
    drop(guard);
    let text = text.to_string();
    assert!(text.contains("`interest`") && text.contains("`no_ack`") && text.contains(&world.stream), "{text}");
    sink.close().await;
}

impl OneStream {
    /// The number of messages in the stream.
    async fn messages(&self) -> u64 {
        let mut stream = self.world.jetstream.get_stream(&self.world.stream).await.unwrap();
        stream.info().await.unwrap().state.messages
    }
}
