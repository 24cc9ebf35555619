//! The runs of a test that crashes everywhere.

use std::time::Duration;

use idem_core::store::LeaseRequest;
use idem_core::{BoxError, Error, Reason, Store};
use tokio::time::timeout;

use super::crash_plan::CrashPlan;
use super::digest::Digest;
use super::elsewhere::Elsewhere;
use super::leases::Leases;
use super::observed::Observed;
use super::one_effect::ToPublication;
use super::polls::Point;
use super::process_thread::End;
use super::trial::Trial;

/// How long a process may take for one message.
const PATIENCE: Duration = Duration::from_secs(60);

/// The runs of a test: each delivers another message.
pub(super) struct Runs<'a, S, M, D> {
    trial: &'a Trial<S>,
    message: M,
    digest: D,
    number: u32,
}

impl<'a, S: Store, F, G> Runs<'a, S, F, G> {
    pub(super) fn new(trial: &'a Trial<S>, message: F, digest: G) -> Self {
        Self { trial, message, digest, number: 0 }
    }

    /// Whether the trial sees what a provider has charged.
    pub(super) fn has_provider(&self) -> bool {
        self.trial.subject.provider.is_some()
    }

    /// Delivers the next message to a process that dies at this point, and again to one that completes it.
    pub(super) async fn run<M: ToPublication, D: Digest>(
        &mut self,
        point: Option<Point>,
    ) -> Result<Observed<D>, BoxError>
    where
        F: FnMut(u32) -> M,
        G: AsyncFnMut() -> Result<D, BoxError>,
    {
        let Self { trial, message, digest, number } = self;
        let crash_plan = match point {
            Some(point) => format!("whose process had to die at {point}"),
            None => "delivered once".to_owned(),
        };
        let about = |error: BoxError| BoxError::from(format!("message {}, {crash_plan}: {error}", *number));
        let dead = trial.dead_letters().await?.first().map(|row| row.id);
        let (before, mark) = (digest().await?, trial.subject.mark());
        trial.publish(&message(*number).to_publication()?);
        let (mut between, mut elsewhere_between) = (None, Elsewhere::default());
        if trial.complete(point).await.map_err(&about)? {
            (between, elsewhere_between) = (Some(digest().await?), trial.subject.since(mark));
            trial.complete(None).await.map_err(&about)?;
        }
        let (after, elsewhere) = (digest().await?, trial.subject.since(mark));
        if let Some(row) = trial.dead_letters().await?.first().filter(|row| Some(row.id) != dead) {
            let reason = row.reason.map_or("no reason", Reason::as_str);
            return Err(about(format!("it is a dead letter ({reason}), {}", row.error).into()));
        }
        *number += 1;
        let by_parts = !trial.subject.locals.is_empty();
        Ok(Observed { before, between, after, elsewhere_between, elsewhere, by_parts })
    }
}

impl<S: Store> Trial<S> {
    /// Runs a process until all messages are completed, or until it dies at this point. Returns whether it died.
    async fn complete(&self, point: Option<Point>) -> Result<bool, BoxError> {
        let mut process = self.start_thread(point)?;
        let completed = async {
            let end = tokio::select! {
                end = process.end() => end?,
                done = self.done() => {
                    done?;
                    process.stop().await?
                }
            };
            match end {
                End::Died => self.release_outbox(&process.crash_plan).await.map(|()| true),
                End::Returned(returned) => returned.map(|()| false),
            }
        };
        match timeout(PATIENCE, completed).await {
            Ok(completed) => Ok(completed?),
            Err(_) => Err(format!("no process completed the message within {PATIENCE:?}").into()),
        }
    }

    /// Releases the lease of a relay whose process is dead, which would otherwise keep it until its end.
    async fn release_outbox(&self, dead: &CrashPlan) -> Result<(), Error> {
        let Some((outbox, token)) = dead.leases().and_then(Leases::relay) else { return Ok(()) };
        let given = self.store.lease_outbox(outbox, token, LeaseRequest::Release).await;
        given.map(drop).map_err(|error| Error::database("could not release the lease of a relay", error))
    }
}
