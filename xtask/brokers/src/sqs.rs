//! A queue of SQS, and publishing with the result of each entry.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region, SharedAsyncSleep, SharedCredentialsProvider};
use aws_sdk_sqs::error::ProvideErrorMetadata;
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, Message, QueueAttributeName, SendMessageBatchRequestEntry};
use aws_smithy_async::rt::sleep::TokioSleep;
use futures_util::{StreamExt, TryStreamExt, stream};
use idem::adapter::{Sink, SinkError, StagedMessage};
use idem::sqs::{Queue, Queues, SdkConfig};

use crate::Broker;

/// The most entries of a request.
const ENTRIES: usize = 10;

/// How many requests of a publisher are under way at once.
const REQUESTS: usize = 8;

/// The shortest visibility timeout that idem allows: the messages of a killed worker come again after it.
const VISIBILITY: Duration = Duration::from_secs(3);

/// ElasticMQ answers for a moment before it has read its queues, after a restart.
const PATIENCE: Duration = Duration::from_secs(30);

/// The codes of the error for a queue that does not exist: of ElasticMQ, and of SQS. The SDK knows only one of them.
const MISSING: [&str; 2] = ["QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"];

/// How the name of a FIFO queue ends, as SQS demands.
const FIFO: &str = ".fifo";

/// The prefix of the queue that gets each message of a relay as well.
const RECORD: &str = "record-";

/// Amazon SQS.
#[derive(Debug)]
pub struct Sqs {
    name: String,
    client: Client,
}

impl Sqs {
    /// Returns the queue to which a relay sends each message as well, and which has no consumer.
    fn record(&self) -> Self {
        Self { name: format!("{RECORD}{}", self.name), client: self.client.clone() }
    }

    /// Returns the URL of the queue; `None` if it does not exist.
    async fn find(&self) -> Result<Option<String>> {
        match self.client.get_queue_url().queue_name(&self.name).send().await {
            Ok(found) => Ok(found.queue_url),
            Err(error) if error.code().is_some_and(|code| MISSING.contains(&code)) => Ok(None),
            Err(error) => Err(error).context("SQS does not answer"),
        }
    }

    /// Returns the URL of the queue, which exists, or will in a moment.
    async fn url(&self) -> Result<String> {
        let start = Instant::now();
        loop {
            match self.find().await? {
                Some(url) => return Ok(url),
                None => ensure!(start.elapsed() < PATIENCE, "the queue {} does not exist", self.name),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn send(&self, url: &str, payloads: &[Vec<u8>]) -> Result<()> {
        let mut send = self.client.send_message_batch().queue_url(url);
        for (number, payload) in payloads.iter().enumerate() {
            let body = std::str::from_utf8(payload).context("a message is not text")?;
            let entry = SendMessageBatchRequestEntry::builder().id(number.to_string()).message_body(body);
            send = send.entries(entry.build()?);
        }
        let sent = send.send().await?;
        ensure!(sent.failed.is_empty(), "SQS refused messages: {:?}", sent.failed);
        Ok(())
    }

    async fn delete_messages(&self, url: &str, messages: &[Message]) -> Result<()> {
        let mut delete = self.client.delete_message_batch().queue_url(url);
        for (number, message) in messages.iter().enumerate() {
            let entry = DeleteMessageBatchRequestEntry::builder().id(number.to_string());
            delete = delete.entries(entry.set_receipt_handle(message.receipt_handle.clone()).build()?);
        }
        let deleted = delete.send().await?;
        ensure!(deleted.failed.is_empty(), "SQS did not delete messages: {:?}", deleted.failed);
        Ok(())
    }
}

impl Broker for Sqs {
    type Source = Queue;
    type Sink = Recording;

    const NAME: &'static str = "sqs";
    const VARIABLE: &'static str = "SQS_URL";
    // A standard queue keeps no order.
    const RELAYED: &'static str = "idem-demo-relayed.fifo";
    const START: fn() -> Result<idem_services::Instance> = idem_services::Sqs::start;

    async fn connect(address: &str, name: &str) -> Result<Self> {
        let client = Client::new(&config(address));
        client.list_queues().send().await.context("cannot connect to SQS")?;
        Ok(Self { name: name.to_owned(), client })
    }

    /// Creates a standard queue, or a FIFO queue if the name says so.
    async fn create_keeping(&self, kept: Duration) -> Result<()> {
        if self.find().await?.is_some() {
            self.delete().await?;
        }
        let mut create = self.client.create_queue().queue_name(&self.name);
        create = create.attributes(QueueAttributeName::MessageRetentionPeriod, kept.as_secs().to_string());
        if self.name.ends_with(FIFO) {
            create = create.attributes(QueueAttributeName::FifoQueue, "true");
        }
        create.send().await.context("cannot create the queue")?;
        Ok(())
    }

    /// Creates a second queue, too.
    async fn create_recording(&self) -> Result<()> {
        self.record().create().await?;
        self.create().await
    }

    /// Empties the second queue.
    async fn recorded(&self) -> Result<Vec<Vec<u8>>> {
        let (record, mut recorded) = (self.record(), Vec::new());
        let url = record.url().await?;
        while record.left().await? > 0 {
            let receive = self.client.receive_message().queue_url(&url).max_number_of_messages(10);
            let messages = receive.wait_time_seconds(1).send().await?.messages.unwrap_or_default();
            if !messages.is_empty() {
                record.delete_messages(&url, &messages).await?;
            }
            recorded.extend(messages.into_iter().map(|message| message.body.unwrap_or_default().into_bytes()));
        }
        Ok(recorded)
    }

    /// Publishes to a standard queue, which has no order.
    async fn publish(&self, payloads: &[Vec<u8>]) -> Result<()> {
        let url = self.url().await?;
        let requests = payloads.chunks(ENTRIES).map(|entries| self.send(&url, entries));
        stream::iter(requests).buffered(REQUESTS).try_collect().await
    }

    async fn left(&self) -> Result<u64> {
        let counts = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesDelayed,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        let ask = self.client.get_queue_attributes().queue_url(self.url().await?);
        let answer = ask.set_attribute_names(Some(counts.to_vec())).send().await?.attributes.unwrap_or_default();
        let mut left = 0;
        for name in &counts {
            left += answer.get(name).context("SQS does not say how many messages there are")?.parse::<u64>()?;
        }
        Ok(left)
    }

    /// Forgets the queue itself, with its messages.
    async fn forget(&self) -> Result<bool> {
        self.delete().await?;
        Ok(true)
    }

    async fn restore(&self) -> Result<()> {
        self.create().await
    }

    async fn delete(&self) -> Result<()> {
        self.client.delete_queue().queue_url(self.url().await?).send().await?;
        Ok(())
    }

    async fn source(address: &str, name: &str) -> Result<Self::Source> {
        Ok(Self::default_source(address, name).await?.visibility(VISIBILITY))
    }

    async fn default_source(address: &str, name: &str) -> Result<Self::Source> {
        Ok(idem::Sqs::new(&config(address)).queue(name).await?)
    }

    async fn sink(address: &str) -> Result<Self::Sink> {
        Ok(Recording { queues: idem::Sqs::new(&config(address)).queues(""), record: None })
    }

    async fn recording_sink(address: &str, _name: &str) -> Result<Self::Sink> {
        let record = idem::Sqs::new(&config(address)).queues(RECORD);
        Ok(Recording { record: Some(record), ..Self::sink(address).await? })
    }
}

/// The queues of a relay, and those to which each message is sent as well. SQS keeps no message that was deleted, and has
/// no copy of a queue. The relay sends one message of a key at a time, so both have the same order.
#[derive(Debug)]
pub struct Recording {
    queues: Queues,
    record: Option<Queues>,
}

impl Sink for Recording {
    fn system(&self) -> &'static str {
        self.queues.system()
    }

    fn name(&self) -> &str {
        self.queues.name()
    }

    fn limit(&self) -> Option<usize> {
        self.queues.limit()
    }

    async fn open(&self) -> Result<(), SinkError> {
        self.queues.open().await
    }

    async fn publish(&self, message: &StagedMessage) -> Result<(), SinkError> {
        self.queues.publish(message).await?;
        match &self.record {
            Some(record) => record.publish(message).await,
            None => Ok(()),
        }
    }

    async fn close(&self) {
        self.queues.close().await;
        if let Some(record) = &self.record {
            record.close().await;
        }
    }
}

/// Returns the configuration of a client of the server at this address, which accepts any credentials.
fn config(address: &str) -> SdkConfig {
    let credentials = Credentials::new("idem", "idem", None, None, "idem");
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .endpoint_url(address)
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .sleep_impl(SharedAsyncSleep::new(TokioSleep::new()))
        .build()
}
