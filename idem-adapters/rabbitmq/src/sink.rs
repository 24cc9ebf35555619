//! An exchange as a sink.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{self, Arc, MutexGuard, PoisonError};

use idem_core::{Error, Sink, SinkConnection, SinkError, StagedMessage};
use lapin::types::ShortString;
use tokio::sync::Mutex;

use crate::config::Config;
use crate::message::encode;
use crate::raw::{Answer, End, Publisher, Raw};
use crate::refusal::Refusal;

/// How many suspects are remembered. Further ones replace all: each is found again when the server refuses it again.
const MOST: usize = 10_000;

/// An exchange, to which a relay publishes the messages of an outbox: see [`RabbitMq::exchange`](crate::RabbitMq::exchange).
pub struct Exchange {
    config: Arc<Config>,
    name: String,
    cloud_events: Option<String>,
    publishing: SinkConnection<Publisher>,
    /// The size of the largest message, once the server has refused a larger one.
    limit: AtomicUsize,
    /// The ids of messages that were unconfirmed when the server closed a channel because of one of them, and did not say
    /// which. Each is published by itself, until it is answered.
    suspects: sync::Mutex<HashSet<u128>>,
    /// The connection of the suspects, of which one at a time is under way. Other messages do not wait for them.
    apart: SinkConnection<Publisher>,
    single: Mutex<()>,
}

impl Exchange {
    pub(crate) fn new(config: Arc<Config>, name: String) -> Self {
        Self {
            config,
            name,
            cloud_events: None,
            publishing: SinkConnection::new(Publisher::is_live),
            limit: AtomicUsize::new(usize::MAX),
            suspects: sync::Mutex::default(),
            apart: SinkConnection::new(Publisher::is_live),
            single: Mutex::default(),
        }
    }

    /// Publishes each message as a CloudEvent in binary mode: headers `cloudEvents_id`, `cloudEvents_source` and so on,
    /// as in [`StagedMessage::cloud_event`]. `source` says where the events come from, for example `/shop/billing`.
    /// An empty one is an error when the relay starts.
    #[must_use]
    pub fn cloud_events(mut self, source: impl Into<String>) -> Self {
        self.cloud_events = Some(source.into());
        self
    }

    /// Opens a connection in place of one that has ended. Its host is left, unless it has only refused a message.
    fn connect(&self, ended: Option<Arc<Publisher>>) -> impl Future<Output = Result<Publisher, Error>> + Send + use<> {
        if let Some(ended) = ended.filter(|ended| !ended.was_refused()) {
            self.config.first.leave(ended.host);
        }
        let (config, exchange) = (Arc::clone(&self.config), self.name.clone());
        async move { Raw::publish(&config, &exchange).await }
    }

    /// Refuses a message that is known to be too large.
    fn check_size(&self, message: &StagedMessage) -> Result<(), SinkError> {
        let (size, limit) = (message.payload().len(), self.limit.load(SeqCst));
        if size <= limit {
            return Ok(());
        }
        Err(SinkError::message(format!(
            "it has {size} bytes, and {} takes at most {limit}: raise max_message_size on the server, or send less",
            self.config.address
        )))
    }

    /// Returns the error for a message that was unconfirmed when the channel or the connection ended.
    fn ended(&self, message: &StagedMessage, end: &End) -> SinkError {
        let place = self.place();
        let (code, text, unconfirmed) = match end {
            End::Lost(text) => return SinkError::broker(format!("the connection to {place} has ended: {text}")),
            End::Refused { code, text, unconfirmed } => (*code, text, *unconfirmed),
        };
        let answer = format!("{place} refuses a message: {code} {text}");
        match Refusal::parse(code, text) {
            Refusal::Broker => SinkError::broker(format!(
                "{answer}. Check that the exchange exists, is not internal, and that the user has the permission `write` on it; else \
                 see the server's log"
            )),
            Refusal::TooLarge { limit } => {
                self.limit.fetch_min(limit, SeqCst);
                self.check_size(message).err().unwrap_or_else(|| SinkError::broker(answer))
            }
            Refusal::Message => {
                // Also if it was the only one: its next attempt would disturb others.
                let mut suspects = self.suspects();
                if suspects.len() >= MOST {
                    suspects.clear();
                }
                suspects.insert(message.id().as_u128());
                if unconfirmed == 1 {
                    return SinkError::message(format!("{answer} (routing key `{}`)", message.to()));
                }
                SinkError::broker(format!("{answer}. {unconfirmed} messages were unconfirmed; each is tried by itself"))
            }
        }
    }

    fn suspects(&self) -> MutexGuard<'_, HashSet<u128>> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self) -> String {
        format!("exchange `{}` on {}", self.name, self.config.address)
    }

    async fn send(&self, publisher: &Publisher, message: &StagedMessage) -> Result<(), SinkError> {
        let encoded = encode(message, &self.name, self.cloud_events.as_deref(), publisher.frame_max)?;
        let answer = publisher.publish(encoded).await;
        if answer.is_ok() {
            self.suspects().remove(&message.id().as_u128());
        }
        match answer {
            Ok(Answer::Stored) => Ok(()),
            Ok(Answer::Returned(reason)) => Err(SinkError::message(format!(
                "{} has returned it ({reason}): no queue is bound for the routing key `{}`. Bind one, or give the \
                 exchange an alternate one",
                self.place(),
                message.to()
            ))),
            Ok(Answer::Nacked) => Err(SinkError::broker(format!(
                "{} cannot store a message with the routing key `{}` (basic.nack): a queue refuses messages \
                 because it is full, or its leader is unavailable",
                self.place(),
                message.to()
            ))),
            Err(end) => Err(self.ended(message, &end)),
        }
    }
}

impl Sink for Exchange {
    fn system(&self) -> &'static str {
        "rabbitmq"
    }

    fn name(&self) -> &str {
        &self.name
    }

    /// Known once the server has refused a message: AMQP does not tell the limit. RabbitMQ's default is 16 MiB since 4.0
    /// and 128 MiB before.
    fn limit(&self) -> Option<usize> {
        Some(self.limit.load(SeqCst)).filter(|limit| *limit < usize::MAX)
    }

    async fn open(&self) -> Result<(), SinkError> {
        if ShortString::try_new(self.name.as_str()).is_err() {
            let text = format!("an exchange's name has at most 255 bytes, and this one has {}", self.name.len());
            return Err(SinkError::message(text));
        }
        if self.cloud_events.as_deref() == Some("") {
            return Err(SinkError::message("the source given to .cloud_events(..) is empty: CloudEvents need one"));
        }
        self.publishing.open(|ended| self.connect(ended)).await?;
        Ok(())
    }

    async fn publish(&self, message: &StagedMessage) -> Result<(), SinkError> {
        self.check_size(message)?;
        if !self.suspects().contains(&message.id().as_u128()) {
            let publisher = self.publishing.get(|ended| self.connect(ended)).await?;
            return self.send(&publisher, message).await;
        }
        let _single = self.single.lock().await;
        let publisher = self.apart.get(|ended| self.connect(ended)).await?;
        self.send(&publisher, message).await
    }

    /// What is unconfirmed is answered with an error. Gives up after 5 seconds without an answer.
    async fn close(&self) {
        for publisher in [self.publishing.take().await, self.apart.take().await].into_iter().flatten() {
            publisher.close().await;
        }
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("name", &self.name).field("config", &self.config).finish_non_exhaustive()
    }
}
