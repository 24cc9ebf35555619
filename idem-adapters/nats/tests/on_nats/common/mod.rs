//! A stream for each test, a second client, and a relay that can be cut.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

pub(crate) mod raw;
pub(crate) mod server;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{self, Info, pull};
use async_nats::jetstream::{self, Context, stream};
use idem_conformance::Proxy;
use idem_core::{BoxError, Delivery, Error, Source, SubscribeOptions};
use idem_nats::{Nats, NatsAcker, Stream};
use tokio::time::timeout;

/// Nothing here takes this long: a test that waits for it has failed.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// The shortest allowed ack wait: tests wait for its end.
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// An ack wait that is long enough for a busy machine to extend it in time.
pub(crate) const KEPT: Duration = Duration::from_secs(3);

pub(crate) fn url() -> Option<String> {
    idem_conformance::server("NATS_URL")
}

/// The stream of one test, and a client to inspect it.
pub(crate) struct World {
    pub(crate) url: String,
    pub(crate) stream: String,
    pub(crate) jetstream: Context,
}

impl World {
    /// Creates a stream. Returns `None` if there is no server to test against.
    pub(crate) async fn new() -> Option<Self> {
        let world = Self::empty().await?;
        world.make(|_| {}).await;
        Some(world)
    }

    /// Connects without creating a stream.
    pub(crate) async fn empty() -> Option<Self> {
        Some(Self::at(url()?).await)
    }

    /// Connects to another server without creating a stream.
    pub(crate) async fn at(url: String) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let jetstream = jetstream::new(async_nats::connect(&url).await.unwrap());
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        let stream = format!("idem-test-{}-{now}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self { url, stream, jetstream }
    }

    /// Creates the stream. It deletes its messages some time after the test, even if the test failed.
    pub(crate) async fn make(&self, change: impl FnOnce(&mut stream::Config)) {
        let mut config = stream::Config {
            name: self.stream.clone(),
            subjects: vec![format!("{}.>", self.stream)],
            max_age: Duration::from_secs(600),
            ..Default::default()
        };
        change(&mut config);
        self.jetstream.create_stream(config).await.unwrap();
    }

    /// Creates a consumer, as another client would.
    pub(crate) async fn consumer(&self, change: impl FnOnce(&mut consumer::Config)) -> Info {
        let mut config = consumer::Config {
            durable_name: Some("billing".to_owned()),
            name: Some("billing".to_owned()),
            max_deliver: -1,
            ack_wait: Duration::from_secs(30),
            ..Default::default()
        };
        change(&mut config);
        self.jetstream.create_consumer_on_stream(config, &self.stream).await.unwrap().cached_info().clone()
    }

    pub(crate) async fn nats(&self) -> Nats {
        Nats::connect(&self.url).await.unwrap()
    }

    /// Returns the source, not subscribed yet.
    pub(crate) async fn source(&self) -> Stream {
        self.nats().await.stream(&self.stream).await.unwrap()
    }

    /// Returns the source, subscribed.
    pub(crate) async fn open(&self, max_unsettled: u16) -> Stream {
        let mut stream = self.source().await;
        stream.subscribe(subscribe_options(max_unsettled)).await.unwrap();
        stream
    }

    /// Returns the source with a short ack wait, subscribed.
    pub(crate) async fn open_short(&self, max_unsettled: u16) -> Stream {
        self.open_for(max_unsettled, SHORT).await
    }

    /// Returns the source with this ack wait, subscribed.
    pub(crate) async fn open_for(&self, max_unsettled: u16, wait: Duration) -> Stream {
        let mut stream = self.source().await.ack_wait(wait);
        stream.subscribe(subscribe_options(max_unsettled)).await.unwrap();
        stream
    }

    /// Returns the source through a relay, with a short ack wait, subscribed.
    pub(crate) async fn open_through(&self, relay: &Proxy, max_unsettled: u16) -> Stream {
        let stream = Nats::connect(relay.address()).await.unwrap().stream(&self.stream).await.unwrap();
        let mut stream = stream.ack_wait(SHORT);
        stream.subscribe(subscribe_options(max_unsettled)).await.unwrap();
        stream
    }

    /// A stream with one message, and the acker of its delivery.
    pub(crate) async fn delivered(max_unsettled: u16) -> Option<(Self, Stream, NatsAcker)> {
        let world = Self::new().await?;
        world.publish("a").await;
        let mut stream = world.open(max_unsettled).await;
        let (_, acker) = next(&mut stream).await;
        Some((world, stream, acker))
    }

    /// The same through a relay, with a short ack wait.
    pub(crate) async fn delivered_through(max_unsettled: u16) -> Option<(Self, Proxy, Stream, NatsAcker)> {
        let world = Self::new().await?;
        let relay = Proxy::start(&world.url).await;
        world.publish("a").await;
        let mut stream = world.open_through(&relay, max_unsettled).await;
        let (_, acker) = next(&mut stream).await;
        Some((world, relay, stream, acker))
    }

    pub(crate) fn subject(&self) -> String {
        format!("{}.x", self.stream)
    }

    pub(crate) async fn publish(&self, payload: impl AsRef<[u8]>) {
        self.publish_with(payload, HeaderMap::new()).await;
    }

    /// Publishes one message after another.
    pub(crate) async fn publish_each(&self, payloads: impl IntoIterator<Item: ToString>) {
        for payload in payloads {
            self.publish(payload.to_string()).await;
        }
    }

    pub(crate) async fn publish_with(&self, payload: impl AsRef<[u8]>, headers: HeaderMap) {
        let payload = payload.as_ref().to_vec().into();
        self.jetstream.publish_with_headers(self.subject(), headers, payload).await.unwrap().await.unwrap();
    }

    pub(crate) async fn info(&self) -> Info {
        let stream = self.jetstream.get_stream(&self.stream).await.unwrap();
        stream.consumer_info("billing").await.unwrap()
    }

    /// Waits until the consumer has this many undelivered messages, and this many unsettled ones.
    pub(crate) async fn until(&self, pending: u64, unsettled: usize) {
        let mut seen = (u64::MAX, usize::MAX);
        let wait = async {
            while seen != (pending, unsettled) {
                let info = self.info().await;
                seen = (info.num_pending, info.num_ack_pending);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if timeout(LONG, wait).await.is_err() {
            panic!("{seen:?} messages are pending and unsettled, and {:?} should be", (pending, unsettled));
        }
    }

    pub(crate) async fn delete_consumer(&self) {
        self.jetstream.delete_consumer_from_stream("billing", &self.stream).await.unwrap();
    }

    pub(crate) async fn delete(&self) {
        self.jetstream.delete_stream(&self.stream).await.unwrap();
    }

    /// Pulls the next message from the same consumer, as another client.
    pub(crate) async fn steal(&self) -> jetstream::Message {
        use futures_util::StreamExt;
        let stream = self.jetstream.get_stream(&self.stream).await.unwrap();
        let consumer: consumer::Consumer<pull::Config> = stream.get_consumer("billing").await.unwrap();
        let mut one = consumer.batch().max_messages(1).expires(LONG).messages().await.unwrap();
        timeout(LONG, one.next()).await.unwrap().expect("no delivery came").unwrap()
    }
}

pub(crate) fn subscribe_options(max_unsettled: u16) -> SubscribeOptions {
    SubscribeOptions::new("billing", max_unsettled)
}

pub(crate) async fn next(stream: &mut Stream) -> (Delivery, NatsAcker) {
    timeout(LONG, stream.next()).await.expect("no delivery came").unwrap()
}

/// Asserts that nothing arrives for this long.
pub(crate) async fn nothing_for(stream: &mut Stream, time: Duration) {
    let came = timeout(time, stream.next()).await;
    assert!(came.is_err(), "nothing was to come, but this came: {:?}", came.map(|next| next.map(|next| next.0)));
}

/// Returns the error with which `next` ends.
pub(crate) async fn loss(stream: &mut Stream) -> BoxError {
    timeout(LONG, stream.next()).await.expect("the loss was not noticed").expect_err("there was still a delivery")
}

/// Returns the message of the error with which `subscribe` fails.
pub(crate) async fn refusal(mut stream: Stream, options: SubscribeOptions) -> String {
    let error = stream.subscribe(options).await.unwrap_err();
    let error = error.downcast_ref::<Error>().unwrap_or_else(|| panic!("{error:?}"));
    assert!(matches!(error, Error::Config(_)), "{error:?}");
    error.to_string()
}
