//! Publishing: one call of the sink, and what its answer means for the message, its key, its destination and the broker.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout};

use crate::outbox::{Sink, SinkError, StagedMessage};
use crate::panic_text::panic_text;
use crate::store::{PublishFailure, RowRef};
use crate::worker::Counted;
use crate::{Error, Store};

use super::circuit::wait_unanswered;
use super::tenure::{End, Tenure};

/// With fewer slots than these, none could be kept for others.
const FEW: usize = 4;

/// A client may give up before the relay does. That counts as no answer if it took so long, or half of the timeout.
const LONG: Duration = Duration::from_secs(5);

/// At how many different messages in a row a sink panics before it counts as broken.
const PANICS: usize = 5;

/// The end of a call of the sink.
#[derive(Debug)]
pub(super) struct Published {
    id: i64,
    began: Instant,
    answer: Answer,
}

/// The answer of a sink.
#[derive(Debug)]
enum Answer {
    Confirmed,
    Refused(String),
    /// The broker is away, or there was no answer in time.
    Away(String),
    /// The sink panicked.
    Panicked(String),
}

/// Publishes one message, for at most this long.
pub(super) fn publish<K: Sink>(
    sink: &K,
    (id, message): (i64, Arc<StagedMessage>),
    limit: Duration,
) -> BoxFuture<'_, Published> {
    Box::pin(async move {
        let began = Instant::now();
        let answer = match timeout(limit, AssertUnwindSafe(sink.publish(&message)).catch_unwind()).await {
            Ok(Ok(Ok(()))) => Answer::Confirmed,
            Ok(Ok(Err(SinkError::Message(error)))) => Answer::Refused(crate::error::text(error.as_ref())),
            Ok(Ok(Err(SinkError::Broker(error)))) => Answer::Away(crate::error::text(error.as_ref())),
            Ok(Err(panic)) => Answer::Panicked(panic_text(panic.as_ref()).to_owned()),
            Err(_) => Answer::Away(format!("it did not confirm a message within {limit:?}")),
        };
        Published { id, began, answer }
    })
}

impl<S: Store, K: Sink> Tenure<'_, S, K> {
    /// Applies the answer to a message.
    pub(super) fn published(&mut self, Published { id, began, answer }: Published) {
        let was_slow = self.flying.remove(&id).unwrap_or(false);
        let now = Instant::now();
        let Some(message) = self.queue.get(id).and_then(|row| row.message.clone()) else { return };
        let to = message.to();
        self.circuits.ended(to, id);
        match answer {
            Answer::Confirmed => {
                self.answered(now);
                if let Some((fresh, tried)) = self.circuits.confirm(to) {
                    tracing::info!(to, "a destination answers again");
                    self.queue.wake(fresh);
                    tried.into_iter().for_each(|id| self.queue.park_unanswered(id, now));
                }
                self.metrics.published.increment(1);
                self.member.count(Counted::Processed);
                if let Some(staged) = self.queue.get(id).and_then(|row| row.staged) {
                    self.metrics.lag.record(now.duration_since(staged));
                }
                self.confirmed.push(RowRef { id, message_id: message.id() });
                let next = self.queue.advance(id);
                self.enqueue(next);
            }
            Answer::Refused(error) => {
                self.answered(now);
                self.refused(id, &message, error);
            }
            Answer::Away(error) => {
                let long = LONG.min(self.relay.settings.publish_timeout / 2);
                let is_late = now.duration_since(began) >= long;
                self.unanswered((id, to, error), is_late, (began, now), was_slow);
            }
            Answer::Panicked(text) => {
                self.panics.insert(id);
                if self.panics.len() < PANICS {
                    self.refused(id, &message, format!("the sink panicked: {text}"));
                } else {
                    self.end.get_or_insert(End::Defect(Error::Panicked { task: "publishing", text }));
                }
            }
        }
    }

    /// Records that the broker answers.
    fn answered(&mut self, now: Instant) {
        self.panics.clear();
        if self.broker.confirm(now) {
            tracing::info!("the broker answers again");
        }
        self.relay.health.set_broker(true);
    }

    /// Lets a message wait that was not confirmed, and records no attempt. `is_late`: there was no answer in time.
    fn unanswered(
        &mut self,
        (id, to, error): (i64, &str, String),
        is_late: bool,
        times: (Instant, Instant),
        was_slow: bool,
    ) {
        let (is_away, is_new) = self.broker.fail(is_late, times);
        if is_new {
            tracing::warn!(error, "the broker is away: the relay tries again, and no attempt is recorded");
            self.relay.health.set_broker(false);
        }
        if !is_late && is_away {
            return self.queue.ready(id, was_slow);
        }
        let is_first = self.queue.get(id).is_some_and(|row| row.tries == 0);
        // One that was tried before may never get an answer, and says nothing of its destination.
        if is_first || self.circuits.is_open(to) {
            let is_new = self.circuits.fail(to, is_late && self.relay.settings.concurrency >= FEW, times);
            if is_new {
                tracing::warn!(to, error, "a destination does not confirm: it is tried with one message at a time");
            }
        }
        let tries = self.queue.count_try(id, is_late);
        match self.circuits.is_open(to) {
            true => self.park_for(to, id),
            false => self.queue.park_unanswered(id, times.1 + wait_unanswered(tries)),
        }
    }

    /// Lets a message wait until its destination answers.
    pub(super) fn park_for(&mut self, to: &str, id: i64) {
        let Some(row) = self.queue.get(id) else { return };
        match self.circuits.park(to, id, (row.key.is_some(), row.tries)) {
            true => self.queue.park(id),
            false => self.queue.remove(id),
        }
    }

    /// Records the attempt of a message that the broker has rejected. Its key waits until that is recorded, and until its next
    /// attempt.
    fn refused(&mut self, id: i64, message: &StagedMessage, error: String) {
        let attempt = message.attempt();
        let next = self.relay.settings.retry.after(attempt);
        self.member.count(Counted::Failed);
        let (message_id, to) = (message.id(), message.to());
        match next {
            Some(due) => {
                self.metrics.rejected.increment(1);
                tracing::warn!(id = %message_id, to, attempt, ?due, error, "the broker has refused a message; it is tried again");
            }
            None => {
                self.metrics.given_up.increment(1);
                let show = self.relay.store.facts().command(&["outbox", "list"], &[&self.relay.name]);
                tracing::error!(id = %message_id, to, attempt, error, %show, "a message of the outbox is a dead letter");
            }
        }
        self.failures.push(PublishFailure { row: RowRef { id, message_id }, attempts: attempt, next, error });
        // Until it is recorded, it is parked without a time.
        self.queue.park(id);
    }
}
