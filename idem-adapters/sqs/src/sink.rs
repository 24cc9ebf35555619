//! Queues as a sink.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_types::SdkConfig;
use idem_core::{Sink, SinkError, StagedMessage};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use crate::batch::{Batches, Ended};
use crate::config::Config;
use crate::error::{Cause, Failure};
use crate::message::{LARGEST, Outgoing};
use crate::name::{NoUrl, find, place, remedy};
use crate::requests::{Answer, answered, isolated, results};

/// Queues of SQS, to which a relay publishes the messages of an outbox: see [`Sqs::queues`](crate::Sqs::queues).
pub struct Queues {
    sdk: SdkConfig,
    prefix: String,
    cloud_events: Option<String>,
    state: Mutex<State>,
}

/// The messages to one queue.
type Sends = Batches<Arc<Outgoing>>;

#[derive(Default)]
struct State {
    config: Option<Arc<Config>>,
    /// The queues that were found, by their destinations.
    queues: HashMap<String, Arc<OnceCell<Arc<Sends>>>>,
    /// The tasks that send. Dropping them ends the calls that are under way.
    senders: JoinSet<()>,
}

impl Queues {
    pub(crate) fn new(sdk: SdkConfig, prefix: String) -> Self {
        Self { sdk, prefix, cloud_events: None, state: Mutex::default() }
    }

    /// Publishes each message as a CloudEvent in binary mode: attributes `ce-id`, `ce-source` and so on, as in
    /// [`StagedMessage::cloud_event`], and the content type as `content-type`. These are five or six of the ten attributes that SQS allows. So
    /// the event type is in `ce-type` only, not in `event-type`.
    /// `source` says where the events come from, for example `/shop/billing`. An empty one is an error when the relay starts.
    #[must_use]
    pub fn cloud_events(mut self, source: impl Into<String>) -> Self {
        self.cloud_events = Some(source.into());
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn config(&self) -> Result<Arc<Config>, SinkError> {
        let mut state = self.state();
        if let Some(config) = &state.config {
            return Ok(Arc::clone(config));
        }
        let config = Arc::new(Config::new(&self.sdk)?);
        state.config = Some(Arc::clone(&config));
        Ok(config)
    }

    /// Returns the calls of a queue. Calls at the same time ask for its URL once.
    async fn batches(&self, queue: &str) -> Result<Arc<Sends>, SinkError> {
        let cell = Arc::clone(self.state().queues.entry(queue.to_owned()).or_default());
        let found = cell.get_or_try_init(|| self.find(queue)).await.cloned();
        if found.is_err() {
            self.state().queues.remove(queue);
        }
        found
    }

    async fn find(&self, queue: &str) -> Result<Arc<Sends>, SinkError> {
        let config = self.config()?;
        let (url, _) = find(&config.client, queue, &config.region).await.map_err(|error| match error {
            NoUrl::Invalid(text) => SinkError::message(text),
            NoUrl::Failed(failure) => failed(&failure, "sqs:GetQueueUrl", &place(queue, &config.region), queue),
        })?;
        let url: Arc<str> = url.into();
        let (batches, sending) = Batches::new(
            LARGEST,
            |message: &Arc<Outgoing>| message.size,
            move |messages| {
                let (config, url) = (Arc::clone(&config), Arc::clone(&url));
                isolated(messages, move |messages| send(Arc::clone(&config), Arc::clone(&url), messages))
            },
        );
        self.state().senders.spawn(sending);
        Ok(Arc::new(batches))
    }
}

/// Sends up to ten messages.
async fn send(config: Arc<Config>, url: Arc<str>, messages: Vec<Arc<Outgoing>>) -> Result<Vec<Answer>, Failure> {
    let entries = messages.iter().enumerate().map(|(number, message)| message.entry(number));
    let entries = entries.collect::<Result<_, _>>().map_err(|error| Failure::of("InvalidEntry", &error.to_string()))?;
    let request = config.client.send_message_batch().queue_url(&*url).set_entries(Some(entries));
    let answer = answered(request.send()).await?;
    Ok(results(messages.len(), answer.successful().iter().map(|entry| entry.id()), answer.failed()))
}

/// Returns the error of a message that was not stored.
fn failed(failure: &Failure, action: &str, place: &str, queue: &str) -> SinkError {
    match failure.cause {
        Cause::Content => SinkError::message(format!("{place} refuses it: {failure}")),
        _ => failure.error(action, place, &remedy(queue)).into(),
    }
}

impl Sink for Queues {
    fn system(&self) -> &'static str {
        "aws_sqs"
    }

    /// The prefix of the names.
    fn name(&self) -> &str {
        &self.prefix
    }

    /// 1 MiB, which applies to payload and attributes together. A queue may have a smaller limit.
    fn limit(&self) -> Option<usize> {
        Some(LARGEST)
    }

    async fn open(&self) -> Result<(), SinkError> {
        if self.cloud_events.as_deref() == Some("") {
            return Err(SinkError::message("the source given to .cloud_events(..) is empty: CloudEvents need one"));
        }
        self.config().map(drop)
    }

    async fn publish(&self, message: &StagedMessage) -> Result<(), SinkError> {
        let queue = format!("{}{}", self.prefix, message.to());
        let outgoing = Outgoing::new(message, &queue, self.cloud_events.as_deref())?;
        let batches = self.batches(&queue).await?;
        match batches.call(Arc::new(outgoing)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(failure)) => {
                if failure.cause == Cause::Missing {
                    // It was deleted, and may have another URL when it is there again.
                    self.state().queues.remove(&queue);
                }
                let region = self.config()?.region.clone();
                Err(failed(&failure, "sqs:SendMessage", &place(&queue, &region), &queue))
            }
            Err(Ended) => Err(SinkError::broker("the sink was closed before SQS has answered")),
        }
    }

    /// Calls that wait for an answer end with an error.
    async fn close(&self) {
        let state = std::mem::take(&mut *self.state());
        let mut senders = state.senders;
        senders.shutdown().await;
    }
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queues")
            .field("prefix", &self.prefix)
            .field("region", &self.sdk.region())
            .finish_non_exhaustive()
    }
}
