//! One message and how it is delivered.

use bytes::Bytes;
use idem_core::{BoxError, Outcome, Store};

use crate::Publication;

use super::{Crash, Trial};

/// A message and how it is delivered. Created by [`Trial::deliver`].
///
/// ```no_run
/// # use idem_core::{BoxError, Store};
/// # async fn test<S: Store>(trial: idem_test::Trial<S>) -> Result<(), BoxError> {
/// trial.deliver("paid").event_type("order.paid").header("tenant", "acme").message_id("m-1").once().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "nothing is delivered before `once`, `times` or `at_once`"]
pub struct Sending<'a, S> {
    trial: &'a Trial<S>,
    message: Publication,
    processes: usize,
    crash: Option<Crash>,
}

impl<S: Store> Trial<S> {
    /// A message to deliver: call `once()`, `times(10)` or `at_once(5)` on the result.
    pub fn deliver(&self, message: impl Into<Publication>) -> Sending<'_, S> {
        Sending { trial: self, message: message.into(), processes: 1, crash: None }
    }

    /// A message to deliver, as JSON.
    ///
    /// # Errors
    /// Fails if the message cannot be serialized as JSON.
    pub fn deliver_json(&self, message: &impl serde::Serialize) -> Result<Sending<'_, S>, serde_json::Error> {
        Publication::json(message).map(|message| self.deliver(message))
    }
}

impl<S: Store> Sending<'_, S> {
    /// Sets the event type, for handlers with `event = ".."`. A message without one goes to the handler that names none.
    pub fn event_type(mut self, event_type: impl Into<String>) -> Self {
        self.message = self.message.event_type(event_type);
        self
    }

    /// Adds a header, for handlers that take `Headers` or have `key = header("..")`.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.message = self.message.header(name, value);
        self
    }

    /// Sets the broker's message id, for handlers with `key = message_id`. All copies have the same id.
    pub fn message_id(mut self, id: impl Into<String>) -> Self {
        self.message = self.message.message_id(id);
        self
    }

    /// Sets the subject, for handlers that take `Subject`.
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.message = self.message.subject(subject);
        self
    }

    /// Sets the key by which a broker chooses a partition, for handlers with `key = partition_key`.
    pub fn partition_key(mut self, key: impl Into<Bytes>) -> Self {
        self.message = self.message.partition_key(key);
        self
    }

    /// Sets the ordering key.
    pub fn ordering_key(mut self, key: u64) -> Self {
        self.message = self.message.ordering_key(key);
        self
    }

    /// Ends the process the first time it reaches this point. Another process then finishes the work. With several
    /// [`processes`](Self::processes), the others start when the first one has reached it, so that none takes the
    /// message before.
    pub fn crash(self, point: Crash) -> Self {
        self.maybe_crash(Some(point))
    }

    pub(super) fn maybe_crash(mut self, point: Option<Crash>) -> Self {
        self.crash = point;
        self
    }

    /// Sets how many processes consume the queue. The default is 1.
    pub fn processes(mut self, processes: usize) -> Self {
        self.processes = processes.max(1);
        self
    }

    /// Delivers the message once and returns the outcomes, including those of retries.
    ///
    /// # Errors
    /// Fails if the worker cannot start, if the database cannot be used, or if the crash point was never reached.
    pub async fn once(self) -> Result<Vec<Outcome>, BoxError> {
        self.run(1, 1).await
    }

    /// Delivers `copies` copies of the message, one after the other.
    ///
    /// # Errors
    /// As [`once`](Self::once).
    pub async fn times(self, copies: usize) -> Result<Vec<Outcome>, BoxError> {
        self.run(copies, 1).await
    }

    /// Delivers `copies` copies of the message, all at once.
    ///
    /// # Errors
    /// As [`once`](Self::once).
    pub async fn at_once(self, copies: usize) -> Result<Vec<Outcome>, BoxError> {
        self.run(copies, copies).await
    }

    #[doc(hidden)]
    pub async fn run(self, copies: usize, concurrency: usize) -> Result<Vec<Outcome>, BoxError> {
        let Self { trial, message, processes, crash } = self;
        let known = trial.outcomes().len();
        for _ in 0..copies {
            trial.publish(&message);
        }
        let is_alone = processes == 1 && crash.is_none();
        let start = |crash| if is_alone { trial.start_ahead(concurrency) } else { trial.start(crash, concurrency) };
        let start_others = || (1..processes).map(|_| start(None)).collect::<Result<Vec<_>, _>>();
        let mut first = start(crash)?;
        let mut others = if crash.is_none() { start_others()? } else { Vec::new() };
        if let Some(point) = crash {
            let crash_plan = first.crash_plan.clone();
            let lived = async {
                tokio::select! {
                    ended = first.ended() => ended?,
                    done = trial.done() => done?,
                }
                // `AfterAck` comes after the broker has the ack, so the broker may be idle before the point is reached.
                first.stop().await
            };
            tokio::select! {
                biased;
                () = crash_plan.sealed() => {}
                lived = lived => {
                    lived?;
                    return Err(format!("all is done, and the crash at {point:?} was never reached").into());
                }
            }
            others = start_others()?;
            drop(first);
            first = start(None)?;
        }
        tokio::select! {
            ended = first.ended() => ended?,
            done = trial.done() => done?,
        }
        first.stop().await?;
        for other in &mut others {
            other.stop().await?;
        }
        Ok(trial.outcomes().split_off(known))
    }
}
