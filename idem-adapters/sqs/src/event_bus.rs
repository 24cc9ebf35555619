//! An event bus as a sink.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_sdk_eventbridge::Client;
use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use aws_types::SdkConfig;
use idem_core::{Error, Sink, SinkError, StagedMessage};
use tokio::task::JoinSet;

use crate::batch::{Batches, Ended};
use crate::config::{client, region};
use crate::error::{Cause, Failure};
use crate::event::{BATCH, LARGEST, event, size};
use crate::presence::Presence;
use crate::requests::{Answer, all, answered, isolated};

/// An event bus of EventBridge, to which a relay publishes the messages of an outbox.
///
/// | message | event |
/// |---|---|
/// | id | the resource `urn:idem:message:<id>`, which [`Envelope::EventBridge`](crate::Envelope::EventBridge) reads: the `id` of the event is another one each time |
/// | event type, or the destination of a message without one | `detail-type` |
/// | payload | `detail`: a JSON object |
/// | key, headers, content type | not carried |
///
/// EventBridge keeps no order. A confirm says that the bus has the event, not that a rule has matched: an event without a rule
/// is dropped. Give the rule's target a dead-letter queue, and the bus an archive, if events must not be lost behind it.
///
/// EventBridge also confirms, and drops, events to a bus that does not exist. So the bus is described after each request, at most ten
/// times a second, before its events count as published. **If the policy does not allow `events:DescribeEventBus`, the events
/// to a missing bus are lost**: the log has a warning when the relay starts.
///
/// | failure | |
/// |---|---|
/// | the policy does not allow `events:PutEvents`; a payload that is no JSON object; more than 1 MiB, or than the region takes | the message is refused, and its neighbours are not |
/// | the bus does not exist any more; EventBridge does not answer within 10 seconds, has a fault or throttles; the credentials are expired; the clock of this machine is wrong | a failure of the broker |
///
/// Up to ten messages are one request. Publishing is cancel safe: a call that is dropped was published or not, and neither
/// fails nor confirms another. When the relay starts, the bus must exist.
///
/// ```no_run
/// # use idem_sqs::EventBus;
/// # fn bus(config: aws_types::SdkConfig) {
/// let bus = EventBus::new(&config, "orders", "com.example.shop");
/// # let _ = bus; }
/// ```
pub struct EventBus {
    sdk: SdkConfig,
    bus: String,
    source: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    batches: Option<Arc<Batches<PutEventsRequestEntry>>>,
    client: Option<Client>,
    /// The task that sends. Dropping it ends the calls that are under way.
    sender: JoinSet<()>,
}

impl EventBus {
    /// Uses the bus of this name or ARN, `default` for the default one. `source` is the `source` of the events, which rules
    /// match; it must not begin with `aws.`. An empty one is an error when the relay starts.
    pub fn new(config: &SdkConfig, bus: impl Into<String>, source: impl Into<String>) -> Self {
        Self { sdk: config.clone(), bus: bus.into(), source: source.into(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self) -> Result<Client, SinkError> {
        let mut state = self.state();
        if let Some(client) = &state.client {
            return Ok(client.clone());
        }
        region(&self.sdk)?;
        let client = client(|| Client::new(&self.sdk))?;
        state.client = Some(client.clone());
        Ok(client)
    }

    fn batches(&self) -> Result<Arc<Batches<PutEventsRequestEntry>>, SinkError> {
        let client = self.client()?;
        let mut state = self.state();
        if let Some(batches) = &state.batches {
            return Ok(Arc::clone(batches));
        }
        let presence = Arc::new(Presence::new(client.clone(), self.bus.clone()));
        let (batches, sending) = Batches::new(BATCH, size, move |entries| {
            let (client, presence) = (client.clone(), Arc::clone(&presence));
            isolated(entries, move |entries| put(client.clone(), Arc::clone(&presence), entries))
        });
        let batches = Arc::new(batches);
        state.sender.spawn(sending);
        state.batches = Some(Arc::clone(&batches));
        Ok(batches)
    }

    fn place(&self) -> String {
        format!("event bus `{}`", self.bus)
    }

    fn error(&self, failure: &Failure, action: &str) -> Error {
        let remedy =
            format!("create it (aws events create-event-bus --name {}), or check account and region", self.bus);
        failure.error(action, &self.place(), &remedy)
    }

    fn failed(&self, failure: &Failure) -> SinkError {
        match failure.cause {
            Cause::Content => SinkError::message(format!("{} refuses it: {failure}", self.place())),
            // The relay waits for a bus that is replaced.
            Cause::Missing => SinkError::broker(self.error(failure, "events:PutEvents")),
            _ => self.error(failure, "events:PutEvents").into(),
        }
    }
}

/// Puts up to ten events. The answer has their order.
async fn put(
    client: Client,
    presence: Arc<Presence>,
    entries: Vec<PutEventsRequestEntry>,
) -> Result<Vec<Answer>, Failure> {
    let count = entries.len();
    let answer = answered(client.put_events().set_entries(Some(entries)).send()).await?;
    presence.check().await?;
    let mut results = all(count, &Failure::of("NoResult", "the answer does not name this entry"));
    for (slot, entry) in results.iter_mut().zip(answer.entries()) {
        *slot = match (entry.event_id(), entry.error_code()) {
            (Some(_), None) => Ok(()),
            (_, code) => Err(Failure::of(code.unwrap_or("NoId"), entry.error_message().unwrap_or_default())),
        };
    }
    Ok(results)
}

impl Sink for EventBus {
    fn system(&self) -> &'static str {
        "aws_eventbridge"
    }

    /// The bus.
    fn name(&self) -> &str {
        &self.bus
    }

    /// 1 MiB, with type, source and id. In some regions EventBridge takes less.
    fn limit(&self) -> Option<usize> {
        Some(LARGEST)
    }

    async fn open(&self) -> Result<(), SinkError> {
        if self.source.is_empty() {
            return Err(SinkError::message(format!(
                "the source of the events of {} is empty: EventBridge needs one",
                self.place()
            )));
        }
        let describe = self.client()?.describe_event_bus().name(&self.bus);
        match answered(describe.send()).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.cause == Cause::Denied => {
                tracing::warn!(
                    bus = self.bus,
                    %failure,
                    "it is not known whether the bus exists, and EventBridge confirms and drops events to one that does not: allow \
                     events:DescribeEventBus"
                );
                Ok(())
            }
            Err(failure) if failure.cause == Cause::Content => Err(self.failed(&failure)),
            Err(failure) => Err(self.error(&failure, "events:DescribeEventBus").into()),
        }
    }

    async fn publish(&self, message: &StagedMessage) -> Result<(), SinkError> {
        let entry = event(message, &self.bus, &self.source)?;
        match self.batches()?.call(entry).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(failure)) => Err(self.failed(&failure)),
            Err(Ended) => Err(SinkError::broker("the sink was closed before EventBridge has answered")),
        }
    }

    /// Calls that wait for an answer end with an error.
    async fn close(&self) {
        let state = std::mem::take(&mut *self.state());
        let mut sender = state.sender;
        sender.shutdown().await;
    }
}

impl fmt::Debug for EventBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventBus").field("bus", &self.bus).field("region", &self.sdk.region()).finish_non_exhaustive()
    }
}
