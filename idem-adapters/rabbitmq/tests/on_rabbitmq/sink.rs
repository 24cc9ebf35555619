//! The conformance suite for sinks, on an exchange of RabbitMQ, and what only RabbitMQ has.

use crate::common;
use crate::common::relay::Relay;
use idem_conformance::sink::{World, message, publish};
use idem_core::{Delivery, Outgoing, Sink, SinkError};
use idem_rabbitmq::{Exchange, Queue, RabbitMq};
use lapin::ExchangeKind;
use lapin::options::ExchangeDeleteOptions;
use lapin::types::AMQPValue;
use tokio::time::timeout;

/// A topic exchange with one quorum queue, and a relay in front of it.
struct OneExchange {
    world: common::World,
    relay: Relay,
}

impl OneExchange {
    async fn exchange(&self, name: &str) -> Exchange {
        RabbitMq::connect(self.relay.url(&self.world.url)).await.unwrap().exchange(name)
    }
}

impl World for OneExchange {
    type Sink = Exchange;
    type Source = Queue;

    /// One byte more than the test server takes.
    const TOO_LARGE: usize = 16 * 1024 * 1024 + 1;

    async fn make() -> Option<Self> {
        let world = common::World::new().await?;
        world.exchange(&world.queue, ExchangeKind::Topic, "orders.#").await;
        let relay = Relay::start(&world.url).await;
        Some(Self { world, relay })
    }

    async fn sink(&self) -> Exchange {
        self.exchange(&self.world.queue).await
    }

    async fn cloud_events(&self, source: &str) -> Exchange {
        self.exchange(&self.world.queue).await.cloud_events(source)
    }

    async fn missing(&self) -> Option<(Exchange, String)> {
        let name = format!("{}-none", self.world.queue);
        Some((self.exchange(&name).await, name))
    }

    async fn source(&self) -> Queue {
        self.world.rabbit().await.queue(&self.world.queue).await.unwrap()
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
            (Outgoing::new("x".repeat(256), "{}"), "the routing key has 256 bytes"),
            (fit().event_type("x".repeat(256)), "the event type has 256 bytes"),
            (fit().content_type("x".repeat(256)), "the content type has 256 bytes"),
            (fit().header("x".repeat(256), ""), "the name of a header has 256 bytes"),
            (fit().header("a", "1").header("a", "2"), "it has the header `a` twice"),
            (fit().header("CC", "orders"), "RabbitMQ reads the header `CC` itself"),
            (fit().header("a", vec![0; 200_000]), "in one frame"),
        ]
    }

    fn event_type(delivery: &Delivery) -> Option<String> {
        delivery.event_type().map(ToOwned::to_owned)
    }

    fn key(delivery: &Delivery) -> Option<Vec<u8>> {
        delivery.headers().get("idem-key").map(ToOwned::to_owned)
    }

    async fn cut(&self) {
        self.relay.cut();
    }

    async fn hold(&self, held: bool) {
        self.relay.hold(held);
    }
}

idem_conformance::sink_suite!(OneExchange);

/// The default exchange routes by the name of a queue.
#[tokio::test]
async fn the_default_exchange_publishes_to_a_queue() {
    let Some(world) = OneExchange::make().await else { return };
    let sink = world.exchange("").await;
    sink.open().await.unwrap();
    publish(&sink, &message(&world.world.queue)).await.unwrap();
    assert!(matches!(publish(&sink, &message("idem-none")).await, Err(SinkError::Message(_))));
    world.world.until_ready(1).await;
    sink.close().await;
}

/// While an exchange is gone, no attempt is recorded; as soon as it is there again, they are published.
#[tokio::test]
async fn an_exchange_that_is_deleted_stops_all_messages() {
    let Some(world) = OneExchange::make().await else { return };
    let sink = world.sink().await;
    sink.open().await.unwrap();
    publish(&sink, &message("orders.paid")).await.unwrap();
    let name = world.world.queue.as_str();
    world.world.channel.exchange_delete(name.into(), ExchangeDeleteOptions::default()).await.unwrap();
    for _ in 0..3 {
        let error = publish(&sink, &message("orders.paid")).await.unwrap_err();
        assert!(matches!(error, SinkError::Broker(_)) && error.to_string().contains(name), "{error}");
    }
    world.world.exchange(name, ExchangeKind::Topic, "orders.#").await;
    publish(&sink, &message("orders.paid")).await.unwrap();
    world.world.until_ready(2).await;
    sink.close().await;
}

/// A queue that is full and refuses what does not fit is not the fault of the message.
#[tokio::test]
async fn a_full_queue_is_a_failure_of_the_broker() {
    let Some(world) = common::World::empty().await else { return };
    let full =
        [("x-max-length", AMQPValue::LongInt(1)), ("x-overflow", AMQPValue::LongString("reject-publish".into()))];
    world.declare("quorum", &full).await;
    let sink = world.rabbit().await.exchange("");
    sink.open().await.unwrap();
    // A quorum queue notices late that it is full.
    let refused = async {
        loop {
            if let Err(error) = publish(&sink, &message(&world.queue)).await {
                return error;
            }
        }
    };
    let error = timeout(common::LONG, refused).await.unwrap();
    assert!(matches!(error, SinkError::Broker(_)) && error.to_string().contains(&world.queue), "{error}");
    sink.close().await;
}

/// A server that cannot be reached is a failure of the broker, and neither error nor sink shows the password.
#[tokio::test]
async fn no_password_is_shown() {
    let Some(world) = OneExchange::make().await else { return };
    let url = world.relay.url(&world.world.url);
    let refused = url.replacen("amqp://guest:guest@", "amqp://guest:s3ntinel@", 1);
    assert_ne!(url, refused);
    // The login is asked for by each connection, and becomes wrong after the first.
    let calls = std::sync::atomic::AtomicU32::new(0);
    let options = RabbitMq::options(world.relay.url(&world.world.url).replacen("guest:guest@", "", 1));
    let rabbit = options.credentials(move || {
        let first = calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
        let password = if first { "guest" } else { "s3ntinel" };
        async move { Ok(idem_rabbitmq::Credentials::new("guest", password)) }
    });
    let sink = rabbit.connect().await.unwrap().exchange("events");
    for error in [sink.open().await.unwrap_err(), publish(&sink, &message("orders.paid")).await.unwrap_err()] {
        assert!(matches!(error, SinkError::Broker(_)), "{error}");
        let texts = idem_conformance::texts(&error);
        assert!(!texts.contains("s3ntinel") && texts.contains("events") | texts.contains("127.0.0.1"), "{texts}");
    }
    assert!(!format!("{sink:?}").contains("s3ntinel"));
}
