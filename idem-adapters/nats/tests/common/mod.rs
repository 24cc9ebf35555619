//! A stream for each test, a client beside the one that is tested, and a relay that can be cut.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

pub(crate) mod relay;
pub(crate) mod server;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{self, Info, pull};
use async_nats::jetstream::{self, Context, stream};
use idem_core::{BoxError, Delivery, Error, Source, SubscribeOptions};
use idem_nats::{Nats, NatsAcker, Stream};
use tokio::time::timeout;

/// Nothing here takes that long; a test that waits for it has failed.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// The shortest that is allowed: tests wait for its end.
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// Long enough that a busy machine extends it in time.
pub(crate) const KEPT: Duration = Duration::from_secs(3);

pub(crate) fn url() -> Option<String> {
    idem_test::conformance::server("NATS_URL")
}

/// The test's own stream, seen by a client of its own.
pub(crate) struct World {
    pub(crate) url: String,
    pub(crate) stream: String,
    pub(crate) jetstream: Context,
}

impl World {
    /// With a stream, or `None` where there is no server to test against.
    pub(crate) async fn new() -> Option<Self> {
        let world = Self::empty().await?;
        world.make(|_| {}).await;
        Some(world)
    }

    /// Without a stream yet.
    pub(crate) async fn empty() -> Option<Self> {
        Some(Self::at(url()?).await)
    }

    /// Without a stream yet, on another server.
    pub(crate) async fn at(url: String) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let jetstream = jetstream::new(async_nats::connect(&url).await.unwrap());
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        let stream = format!("idem-test-{}-{now}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self { url, stream, jetstream }
    }

    /// Each stream forgets what it has some time after its test, also after one that failed.
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

    /// A consumer that somebody else has made.
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

    /// The source, not yet open.
    pub(crate) async fn source(&self) -> Stream {
        self.nats().await.stream(&self.stream).await.unwrap()
    }

    /// The source, open.
    pub(crate) async fn open(&self, max_unsettled: u16) -> Stream {
        let mut stream = self.source().await;
        stream.subscribe(subscribe_options(max_unsettled)).await.unwrap();
        stream
    }

    /// The source with a short ack wait, open.
    pub(crate) async fn open_short(&self, max_unsettled: u16) -> Stream {
        self.open_for(max_unsettled, SHORT).await
    }

    /// The source with this ack wait, open.
    pub(crate) async fn open_for(&self, max_unsettled: u16, wait: Duration) -> Stream {
        let mut stream = self.source().await.ack_wait(wait);
        stream.subscribe(subscribe_options(max_unsettled)).await.unwrap();
        stream
    }

    /// The source by way of a relay, with a short ack wait, open.
    pub(crate) async fn open_through(&self, relay: &relay::Relay, max_unsettled: u16) -> Stream {
        let stream = Nats::connect(relay.url()).await.unwrap().stream(&self.stream).await.unwrap();
        let mut stream = stream.ack_wait(SHORT);
        stream.subscribe(subscribe_options(max_unsettled)).await.unwrap();
        stream
    }

    pub(crate) fn subject(&self) -> String {
        format!("{}.x", self.stream)
    }

    pub(crate) async fn publish(&self, payload: impl AsRef<[u8]>) {
        self.publish_with(payload, HeaderMap::new()).await;
    }

    pub(crate) async fn publish_with(&self, payload: impl AsRef<[u8]>, headers: HeaderMap) {
        let payload = payload.as_ref().to_vec().into();
        self.jetstream.publish_with_headers(self.subject(), headers, payload).await.unwrap().await.unwrap();
    }

    pub(crate) async fn info(&self) -> Info {
        let stream = self.jetstream.get_stream(&self.stream).await.unwrap();
        stream.consumer_info("billing").await.unwrap()
    }

    /// Returns when the consumer has this many messages that it never delivered, and this many that are unsettled.
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

    /// Another client that pulls from the same consumer by hand: its next message.
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

/// Asserts that nothing comes for so long.
pub(crate) async fn nothing_for(stream: &mut Stream, time: Duration) {
    let came = timeout(time, stream.next()).await;
    assert!(came.is_err(), "nothing was to come, but this came: {:?}", came.map(|next| next.map(|next| next.0)));
}

/// The error that `next` ends with.
pub(crate) async fn loss(stream: &mut Stream) -> BoxError {
    timeout(LONG, stream.next()).await.expect("the loss was not noticed").expect_err("there was still a delivery")
}

/// All that an error says, to a person and to a programmer.
pub(crate) fn texts(error: &(dyn std::error::Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(|error| format!("{error}\n{error:?}\n")).collect()
}

/// Returns the message with which the subscription is refused.
pub(crate) async fn refusal(mut stream: Stream, options: SubscribeOptions) -> String {
    let error = stream.subscribe(options).await.unwrap_err();
    let error = error.downcast_ref::<Error>().unwrap_or_else(|| panic!("{error:?}"));
    assert!(matches!(error, Error::Config(_)), "{error:?}");
    error.to_string()
}
