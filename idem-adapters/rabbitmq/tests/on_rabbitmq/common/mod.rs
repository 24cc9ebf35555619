//! A queue for each test, a client beside the tested one, and a relay that can cut connections.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

pub(crate) mod raw;
pub(crate) mod relay;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use idem_core::{BoxError, Delivery, Source, SubscribeOptions};
use idem_rabbitmq::{Queue, RabbitMq, RabbitMqAcker};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions};
use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// No step takes this long; a test that reaches it has failed.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) fn url() -> Option<String> {
    idem_conformance::server("AMQP_URL")
}

/// The test's own queue, and a separate client for it.
pub(crate) struct World {
    pub(crate) url: String,
    pub(crate) queue: String,
    pub(crate) channel: Channel,
    pub(crate) connection: Connection,
    pub(crate) _deletion: Deletion,
}

/// Deletes the queue when its test has ended, also if it has failed. It does not expire: idem refuses such a queue.
pub(crate) struct Deletion {
    url: String,
    queue: String,
}

impl Drop for Deletion {
    fn drop(&mut self) {
        let (url, queue) = (self.url.clone(), self.queue.clone());
        let delete = async move {
            let connection = Connection::connect(&url, ConnectionProperties::default()).await?;
            connection.create_channel().await?.queue_delete(queue.into(), QueueDeleteOptions::default()).await?;
            connection.close(200, "done".into()).await
        };
        // On its own thread, because a runtime cannot wait inside of another one.
        let _ = std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let _ = runtime.block_on(async { timeout(LONG, delete).await });
        })
        .join();
    }
}

impl World {
    /// Creates a world with a quorum queue, or returns `None` if there is no server to test against.
    pub(crate) async fn new() -> Option<Self> {
        let world = Self::empty().await?;
        world.declare("quorum", &[]).await;
        Some(world)
    }

    /// Creates a world without a queue.
    pub(crate) async fn empty() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let url = url()?;
        let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        let queue = format!("idem-test-{}-{now}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let _deletion = Deletion { url: url.clone(), queue: queue.clone() };
        Some(Self { url, queue, channel, connection, _deletion })
    }

    /// Declares a queue of this kind. A quorum queue has no delivery limit.
    pub(crate) async fn declare(&self, kind: &str, arguments: &[(&str, AMQPValue)]) {
        let mut arguments = arguments.to_vec();
        if kind == "quorum" && self.major().await >= 4 {
            arguments.push(("x-delivery-limit", AMQPValue::LongInt(-1)));
        }
        self.declare_as_is(kind, &arguments).await;
    }

    /// Returns the major version of the server, from the first frame that it sends.
    pub(crate) async fn major(&self) -> u32 {
        let mut server = tokio::net::TcpStream::connect(idem_conformance::authority(&self.url)).await.unwrap();
        server.write_all(b"AMQP\x00\x00\x09\x01").await.unwrap();
        let mut head = [0; 7];
        server.read_exact(&mut head).await.unwrap();
        let mut start = vec![0; u32::from_be_bytes(head[3..].try_into().unwrap()) as usize];
        server.read_exact(&mut start).await.unwrap();
        let name = b"\x07versionS";
        let at = start.windows(name.len()).position(|bytes| bytes == name).unwrap() + name.len() + 4;
        u32::from(start[at] - b'0')
    }

    /// Declares a queue with these arguments only.
    pub(crate) async fn declare_as_is(&self, kind: &str, arguments: &[(&str, AMQPValue)]) {
        let mut table = FieldTable::default();
        table.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
        for (name, value) in arguments {
            table.insert((*name).into(), value.clone());
        }
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        self.channel.queue_declare(self.queue.as_str().into(), options, table).await.unwrap();
    }

    /// Declares an exchange, and binds the queue to it. It is gone with the queue.
    pub(crate) async fn exchange(&self, name: &str, kind: ExchangeKind, pattern: &str) {
        let (queue, none) = (self.queue.as_str(), FieldTable::default);
        let options = ExchangeDeclareOptions { durable: true, auto_delete: true, ..Default::default() };
        self.channel.exchange_declare(name.into(), kind, options, none()).await.unwrap();
        let options = QueueBindOptions::default();
        self.channel.queue_bind(queue.into(), name.into(), pattern.into(), options, none()).await.unwrap();
    }

    pub(crate) async fn rabbit(&self) -> RabbitMq {
        RabbitMq::connect(&self.url).await.unwrap()
    }

    /// Returns a subscribed source.
    pub(crate) async fn open(&self, max_unsettled: u16) -> Queue {
        let mut queue = self.rabbit().await.queue(&self.queue).await.unwrap();
        queue.subscribe(subscribe_options(max_unsettled)).await.unwrap();
        queue
    }

    /// Returns a source that is subscribed through a relay.
    pub(crate) async fn open_through(&self, relay: &relay::Relay, max_unsettled: u16) -> Queue {
        let rabbit = RabbitMq::connect(relay.url(&self.url)).await.unwrap();
        let mut queue = rabbit.queue(&self.queue).await.unwrap();
        queue.subscribe(subscribe_options(max_unsettled)).await.unwrap();
        queue
    }

    pub(crate) async fn publish(&self, payload: impl AsRef<[u8]>) {
        self.publish_with(payload, BasicProperties::default()).await;
    }

    /// Publishes one message after another.
    pub(crate) async fn publish_each(&self, payloads: impl IntoIterator<Item: ToString>) {
        for payload in payloads {
            self.publish(payload.to_string()).await;
        }
    }

    pub(crate) async fn publish_with(&self, payload: impl AsRef<[u8]>, properties: BasicProperties) {
        let options = BasicPublishOptions { mandatory: true, ..Default::default() };
        let name = self.queue.as_str().into();
        let confirm = self.channel.basic_publish("".into(), name, options, payload.as_ref(), properties).await.unwrap();
        let confirm = confirm.await.unwrap();
        assert!(confirm.is_ack() && confirm.take_message().is_none(), "the message did not reach the queue");
    }

    /// Publishes messages with an id that is not UTF-8.
    pub(crate) async fn publish_unreadable(&self, payloads: &[&str]) {
        let mut raw = raw::Raw::connect(&self.url).await;
        for payload in payloads {
            raw.publish(&self.queue, raw::BAD_ID, payload.as_bytes()).await;
        }
    }

    /// Waits until the queue has this many messages that are not with a consumer.
    pub(crate) async fn until_ready(&self, count: u32) {
        let options = QueueDeclareOptions { passive: true, ..Default::default() };
        let mut seen = u32::MAX;
        let wait = async {
            while seen != count {
                let name = self.queue.as_str().into();
                seen = self.channel.queue_declare(name, options, FieldTable::default()).await.unwrap().message_count();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if timeout(LONG, wait).await.is_err() {
            panic!("{seen} messages are ready, and {count} should be");
        }
    }

    pub(crate) async fn delete(&self) {
        self.channel.queue_delete(self.queue.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
    }
}

pub(crate) fn subscribe_options(max_unsettled: u16) -> SubscribeOptions {
    SubscribeOptions::new("billing", max_unsettled)
}

pub(crate) async fn next(queue: &mut Queue) -> (Delivery, RabbitMqAcker) {
    timeout(LONG, queue.next()).await.expect("no delivery came").unwrap()
}

/// Returns the error that ends `next`.
pub(crate) async fn loss(queue: &mut Queue) -> BoxError {
    timeout(LONG, queue.next()).await.expect("the loss was not noticed").expect_err("there was still a delivery")
}
