//! A queue for each test, a second client, and a relay that can be cut.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod fake;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Region, SharedCredentialsProvider};
use aws_sdk_sqs::error::DisplayErrorContext;
use aws_sdk_sqs::types::{Message, MessageAttributeValue, QueueAttributeName};
use aws_smithy_async::rt::sleep::{SharedAsyncSleep, TokioSleep};
use aws_types::SdkConfig;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use idem_conformance::Proxy;
use idem_core::{BoxError, Delivery, Error, Source, SubscribeOptions};
use idem_sqs::{Queue, Sqs, SqsAcker};
use idem_test::Publication;
use tokio::time::timeout;

/// Nothing here takes this long: a test that waits for it has failed.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// The shortest allowed visibility timeout: tests wait for its end.
pub(crate) const SHORT: Duration = Duration::from_secs(3);

pub(crate) fn url() -> Option<String> {
    idem_conformance::server("SQS_URL")
}

/// The configuration of a client of the server at this address, as an application loads it.
pub(crate) fn config(endpoint: &str) -> SdkConfig {
    let credentials = Credentials::from_keys("idem", "s3ntinel", None);
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .endpoint_url(endpoint)
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .sleep_impl(SharedAsyncSleep::new(TokioSleep::new()))
        .build()
}

/// The queue of one test, and a client to inspect it.
pub(crate) struct World {
    pub(crate) url: String,
    pub(crate) queue: String,
    pub(crate) queue_url: String,
    pub(crate) client: Client,
}

impl World {
    /// Creates a standard queue. Returns `None` if there is no server to test against.
    pub(crate) async fn new() -> Option<Self> {
        Self::with(&[]).await
    }

    /// Creates a FIFO queue.
    pub(crate) async fn fifo() -> Option<Self> {
        Self::with(&[(QueueAttributeName::FifoQueue, "true")]).await
    }

    /// Creates a queue with these attributes.
    pub(crate) async fn with(attributes: &[(QueueAttributeName, &str)]) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let url = url()?;
        let client = Client::new(&config(&url));
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        let is_fifo = attributes.iter().any(|(name, _)| *name == QueueAttributeName::FifoQueue);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let end = if is_fifo { ".fifo" } else { "" };
        let queue = format!("idem-test-{}-{now}-{number}{end}", std::process::id());
        let mut create = client.create_queue().queue_name(&queue);
        for (name, value) in attributes {
            create = create.attributes(name.clone(), *value);
        }
        let created = create.send().await.unwrap_or_else(|error| panic!("{}", DisplayErrorContext(error)));
        Some(Self { url, queue, queue_url: created.queue_url.unwrap(), client })
    }

    pub(crate) fn sqs(&self) -> Sqs {
        Sqs::new(&config(&self.url))
    }

    /// Returns the source, not subscribed yet. It waits for a second only, so that tests close quickly.
    pub(crate) async fn source(&self) -> Queue {
        self.sqs().queue(&self.queue).await.unwrap().wait_time(Duration::from_secs(1))
    }

    /// Returns the source through a relay, not subscribed yet.
    pub(crate) async fn source_through(&self, relay: &Proxy) -> Queue {
        let sqs = Sqs::new(&config(&relay.url(&self.url)));
        sqs.queue(&self.queue).await.unwrap().wait_time(Duration::from_secs(1))
    }

    /// Returns the source, subscribed.
    pub(crate) async fn open(&self, max_unsettled: u16) -> Queue {
        let mut queue = self.source().await;
        queue.subscribe(subscribe_options(max_unsettled)).await.unwrap();
        queue
    }

    /// Returns the source with this visibility timeout, subscribed.
    pub(crate) async fn open_for(&self, max_unsettled: u16, visibility: Duration) -> Queue {
        let mut queue = self.source().await.visibility(visibility);
        queue.subscribe(subscribe_options(max_unsettled)).await.unwrap();
        queue
    }

    pub(crate) async fn publish(&self, publication: impl Into<Publication>) {
        self.publish_to(publication, None).await;
    }

    /// Publishes to a group of a FIFO queue.
    pub(crate) async fn publish_to(&self, publication: impl Into<Publication>, group: Option<&str>) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let publication = publication.into();
        let (body, encoding) = body(publication.payload());
        let mut send = self.client.send_message().queue_url(&self.queue_url).message_body(body);
        for (name, value) in publication.get_headers().iter() {
            send = send.message_attributes(name, attribute(std::str::from_utf8(value).unwrap()));
        }
        let content_type = publication.get_content_type();
        for (name, value) in
            [("message-id", publication.get_message_id()), ("content-type", content_type), ("idem-encoding", encoding)]
        {
            if let Some(value) = value {
                send = send.message_attributes(name, attribute(value));
            }
        }
        if let Some(group) = group {
            let id = COUNT.fetch_add(1, Ordering::Relaxed).to_string();
            send = send.message_group_id(group).message_deduplication_id(id);
        }
        send.send().await.unwrap_or_else(|error| panic!("{}", DisplayErrorContext(error)));
    }

    /// The number of messages that are visible.
    pub(crate) async fn ready(&self) -> usize {
        self.count(QueueAttributeName::ApproximateNumberOfMessages).await
    }

    /// The number of messages that somebody has received.
    pub(crate) async fn hidden(&self) -> usize {
        self.count(QueueAttributeName::ApproximateNumberOfMessagesNotVisible).await
    }

    async fn count(&self, name: QueueAttributeName) -> usize {
        let ask = self.client.get_queue_attributes().queue_url(&self.queue_url).attribute_names(name.clone());
        ask.send().await.unwrap().attributes.unwrap()[&name].parse().unwrap()
    }

    /// Receives the next message as another client, and hides it for this long.
    pub(crate) async fn steal(&self, visibility: Duration) -> Message {
        let seconds = i32::try_from(visibility.as_secs()).unwrap();
        let receive = self.client.receive_message().queue_url(&self.queue_url).visibility_timeout(seconds);
        let received = timeout(LONG, receive.wait_time_seconds(20).send()).await.unwrap().unwrap();
        received.messages.and_then(|mut messages| messages.pop()).expect("no delivery came")
    }

    pub(crate) async fn delete(&self) {
        self.client.delete_queue().queue_url(&self.queue_url).send().await.unwrap();
    }
}

/// Returns the body for this payload, as a relay encodes it.
fn body(payload: &[u8]) -> (String, Option<&'static str>) {
    let is_allowed = |char: &char| !char.is_control() || matches!(char, '\t' | '\n' | '\r');
    match std::str::from_utf8(payload) {
        Ok("") => ("-".to_owned(), Some("empty")),
        Ok(text) if text.chars().all(|char| is_allowed(&char)) => (text.to_owned(), None),
        _ => (STANDARD.encode(payload), Some("base64")),
    }
}

fn attribute(value: &str) -> MessageAttributeValue {
    let (data_type, value) = if value.is_empty() { ("String.empty", "-") } else { ("String", value) };
    MessageAttributeValue::builder().data_type(data_type).string_value(value).build().unwrap()
}

pub(crate) fn subscribe_options(max_unsettled: u16) -> SubscribeOptions {
    SubscribeOptions::new("billing", max_unsettled)
}

pub(crate) async fn next(queue: &mut Queue) -> (Delivery, SqsAcker) {
    timeout(LONG, queue.next()).await.expect("no delivery came").unwrap()
}

/// Asserts that nothing arrives for this long.
pub(crate) async fn nothing_for(queue: &mut Queue, time: Duration) {
    let came = timeout(time, queue.next()).await;
    assert!(came.is_err(), "nothing was to come, but this came: {:?}", came.map(|next| next.map(|next| next.0)));
}

/// Returns the error with which `next` ends.
pub(crate) async fn loss(queue: &mut Queue) -> BoxError {
    timeout(LONG, queue.next()).await.expect("the loss was not noticed").expect_err("there was still a delivery")
}

/// Returns the message of the error with which `subscribe` fails.
pub(crate) async fn refusal(mut queue: Queue, options: SubscribeOptions) -> String {
    let error = queue.subscribe(options).await.unwrap_err();
    let error = error.downcast_ref::<Error>().unwrap_or_else(|| panic!("{error:?}"));
    assert!(matches!(error, Error::Config(_)), "{error:?}");
    error.to_string()
}
