//! One message and how it is delivered.

use idem_core::{BoxError, Outcome, Store};

use crate::Publication;

use super::{Crash, Trial};

/// A message and how it is delivered. Created by [`Trial::deliver`].
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
    /// Ends the process the first time it reaches this point. Another process then finishes the work.
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

    pub(crate) async fn run(self, copies: usize, concurrency: usize) -> Result<Vec<Outcome>, BoxError> {
        let Self { trial, message, processes, crash } = self;
        let known = trial.outcomes().len();
        for _ in 0..copies {
            trial.publish(&message);
        }
        let start = |crash| trial.start(crash, concurrency);
        let mut first = start(crash)?;
        let mut others = (1..processes).map(|_| start(None)).collect::<Result<Vec<_>, _>>()?;
        if let Some(point) = crash {
            let fate = first.fate.clone();
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
                () = fate.sealed() => {}
                lived = lived => {
                    lived?;
                    return Err(format!("all is done, and the crash at {point:?} was never reached").into());
                }
            }
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
