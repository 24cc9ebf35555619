//! The topics of a cluster as a sink.

use std::fmt;
use std::sync::Arc;

use idem_core::{Error, Sink, SinkConnection, SinkError, StagedMessage};
use rdkafka::error::KafkaError;
use rdkafka::message::OwnedHeaders;

use crate::config::Config;
use crate::connection;
use crate::property;
use crate::record::{check_topic, headers, record, size};
use crate::refusal::Refusal;
use crate::sender::Sender;

/// The topics of a cluster, to which a relay publishes the messages of an outbox: see
/// [`Kafka::producer`](crate::Kafka::producer).
pub struct Producer {
    config: Arc<Config>,
    cloud_events: Option<String>,
    publishing: SinkConnection<Sender>,
    /// For messages of batches that were refused: each is sent again in a batch by itself.
    single: SinkConnection<Sender>,
    /// The size of the largest message.
    limit: usize,
}

impl Producer {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        let limit = property::largest(&config.client);
        let (publishing, single) = (SinkConnection::new(Sender::is_live), SinkConnection::new(Sender::is_live));
        Self { config, cloud_events: None, publishing, single, limit }
    }

    /// Publishes each message as a CloudEvent in binary mode: headers `ce_id`, `ce_source` and so on, as in
    /// [`StagedMessage::cloud_event`]. `source` says where the events come from, for example `/shop/billing`.
    /// An empty one is an error when the relay starts.
    #[must_use]
    pub fn cloud_events(mut self, source: impl Into<String>) -> Self {
        self.cloud_events = Some(source.into());
        self
    }

    /// Creates a producer, in place of one that has ended. One that is `single` sends each message in a batch by itself.
    fn create(
        &self,
        ended: Option<Arc<Sender>>,
        single: bool,
    ) -> impl Future<Output = Result<Sender, Error>> + Send + use<> {
        if let Some(ended) = ended {
            tracing::warn!(reason = ended.reason(), "a producer of Kafka has ended; another one takes its place");
        }
        let config = Arc::clone(&self.config);
        async move { Ok(Sender::new(&config.current().await?, single)?) }
    }

    /// Sends a message, in a batch by itself if it is `single`, and returns its error with what it says.
    async fn send(
        &self,
        message: &StagedMessage,
        headers: OwnedHeaders,
        single: bool,
    ) -> Result<(), (Refusal, String)> {
        let failed = |error: SinkError| match error {
            SinkError::Message(error) | SinkError::Broker(error) => (Refusal::Broker, error.to_string()),
            error => (Refusal::Broker, error.to_string()),
        };
        let producer = if single { &self.single } else { &self.publishing };
        let producer = producer.get(|ended| self.create(ended, single)).await.map_err(failed)?;
        match producer.send(record(message, headers)).await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                let refusal = error.rdkafka_error_code().map_or(Refusal::Broker, Refusal::of);
                let text = told(&error, if refusal == Refusal::Broker { producer.reason() } else { String::new() });
                Err((refusal, text))
            }
            None => {
                Err((Refusal::Broker, format!("the producer has ended. {}", producer.reason()).trim_end().to_owned()))
            }
        }
    }

    fn failure(&self, message: &StagedMessage, (refusal, text): (Refusal, String)) -> SinkError {
        let place = format!("topic `{}` at {}", message.to(), self.config.place);
        match refusal {
            Refusal::Topic(cure) | Refusal::Batch(cure) => {
                let size = message.payload().len();
                SinkError::message(format!("{place} refuses a message of {size} bytes ({text}): {cure}"))
            }
            Refusal::Broker => SinkError::broker(format!("{place} did not confirm a message: {text}")),
        }
    }
}

impl Sink for Producer {
    fn system(&self) -> &'static str {
        "kafka"
    }

    /// The addresses of the brokers.
    fn name(&self) -> &str {
        &self.config.place
    }

    /// The property `message.max.bytes`, by default 1,000,000. A topic may take less (`max.message.bytes`).
    fn limit(&self) -> Option<usize> {
        Some(self.limit)
    }

    async fn open(&self) -> Result<(), SinkError> {
        if self.cloud_events.as_deref() == Some("") {
            return Err(SinkError::message("the source given to .cloud_events(..) is empty: CloudEvents need one"));
        }
        let opened = async {
            connection::connect(&self.config.current().await?).await?;
            self.publishing.open(|ended| self.create(ended, false)).await.map(drop)
        };
        Ok(opened.await?)
    }

    async fn publish(&self, message: &StagedMessage) -> Result<(), SinkError> {
        check_topic(message.to())?;
        let headers = headers(message, self.cloud_events.as_deref())?;
        let size = size(message, &headers);
        if size > self.limit {
            return Err(SinkError::message(format!(
                "it has {} bytes, {size} with key and headers, and the producer to {} takes at most {}: raise \
                 .property(\"message.max.bytes\", ..) of Kafka::options and max.message.bytes of the topic, or send less",
                message.payload().len(),
                self.config.place,
                self.limit
            )));
        }
        let sent = match self.send(message, headers.clone(), false).await {
            // Of another message in its batch, perhaps, or of their sum.
            Err((Refusal::Batch(_), _)) => self.send(message, headers, true).await,
            sent => sent,
        };
        sent.map_err(|error| self.failure(message, error))
    }

    async fn close(&self) {
        for producer in [self.publishing.take().await, self.single.take().await].into_iter().flatten() {
            producer.end();
        }
    }
}

/// An error of the client, with the last reason that it gave for one, if there is any.
fn told(error: &KafkaError, reason: String) -> String {
    let text = error.rdkafka_error_code().map_or_else(|| error.to_string(), |code| code.to_string());
    if reason.is_empty() { text } else { format!("{text}; the last error of the client was: {reason}") }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("config", &self.config).finish_non_exhaustive()
    }
}
