//! The topics of a cluster as a sink.

use std::fmt;
use std::sync::Arc;

use idem_core::{Error, Sink, SinkConnection, SinkError, StagedMessage};
use rdkafka::message::OwnedHeaders;

use crate::config::Config;
use crate::connection;
use crate::message::{check_topic, headers, record};
use crate::property;
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
}

impl Producer {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        let (publishing, single) = (SinkConnection::new(Sender::is_live), SinkConnection::new(Sender::is_live));
        Self { config, cloud_events: None, publishing, single }
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

    /// Sends a message, in a batch by itself if it is `single`. Returns whether it is confirmed; if not, its batch was refused,
    /// perhaps because of another message in it, or of their sum.
    async fn send(&self, message: &StagedMessage, headers: OwnedHeaders, single: bool) -> Result<bool, SinkError> {
        let producer = if single { &self.single } else { &self.publishing };
        let producer = producer.get(|ended| self.create(ended, single)).await?;
        let (refusal, text) = match producer.send(record(message, headers)).await {
            Some(Ok(())) => return Ok(true),
            Some(Err(error)) => match error.rdkafka_error_code() {
                Some(code) => (Refusal::of(code), code.to_string()),
                None => (Refusal::Broker, error.to_string()),
            },
            None => (Refusal::Broker, "the producer has ended".to_owned()),
        };
        let place = format!("topic `{}` at {}", message.to(), self.config.place);
        match refusal {
            Refusal::Batch(_) if !single => Ok(false),
            Refusal::Topic(remedy) | Refusal::Batch(remedy) => {
                let size = message.payload().len();
                Err(SinkError::message(format!("{place} refuses a message of {size} bytes ({text}): {remedy}")))
            }
            Refusal::Broker => {
                let text = format!("{place} did not confirm a message: {text}. {}", producer.reason());
                Err(SinkError::broker(text.trim_end()))
            }
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
        Some(property::largest(&self.config.client))
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
        if !self.send(message, headers.clone(), false).await? {
            self.send(message, headers, true).await?;
        }
        Ok(())
    }

    async fn close(&self) {
        for producer in [self.publishing.take().await, self.single.take().await].into_iter().flatten() {
            producer.end();
        }
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("config", &self.config).finish_non_exhaustive()
    }
}
