//! What became of a run that was cut off: by its deadline, by a lost connection, by the end of the worker.

use std::time::Duration;

use tokio::time::Instant;

use crate::Store;
use crate::runtime::Pipeline;
use crate::store::{Fate, StoreError, Ticket};

use super::{Failure, RunResult};

/// How long a worker that drains waits for a transaction that was cut off and still runs.
const GRACE: Duration = Duration::from_secs(2);

/// The longest wait between two questions about a transaction that still runs.
const LONGEST: Duration = Duration::from_millis(500);

impl<S: Store> Pipeline<S> {
    /// A handler that ran into its deadline is charged only if the database answers at once: a database that hangs
    /// makes every handler late. Its transaction was dropped.
    pub(crate) async fn late(&self, ticket: Option<Ticket>) -> RunResult {
        let ran = match tokio::time::timeout(Duration::from_secs(1), self.store.ping()).await {
            Ok(Ok(())) => RunResult::Failed(Failure::late(self.settings.deadline)),
            Ok(Err(fault)) => RunResult::Broke(fault),
            Err(_) => {
                let late = "the database did not answer within a second of the handler's deadline";
                RunResult::Broke(StoreError::ConnectionLost(late.into()))
            }
        };
        self.cut_off(ticket, ran).await
    }

    /// The run is over without COMMIT or ROLLBACK of ours: it is what `ran` says, unless the handler had run COMMIT. Then
    /// its claim stands, and the message would pass for processed.
    pub(crate) async fn cut_off(&self, ticket: Option<Ticket>, ran: RunResult) -> RunResult {
        let Some(ticket) = ticket else { return ran };
        // Boxed: it is seldom needed, and every delivery's future would carry it.
        match Box::pin(self.fate(&ticket)).await {
            Some(Fate::Committed) => RunResult::CommittedEarly,
            Some(Fate::Running) | None => RunResult::Stopped,
            Some(Fate::CommitRefused) => RunResult::Failed(Failure::commit_refused()),
            Some(Fate::RolledBack) => ran,
        }
    }

    /// Asks until the transaction has ended: until then its claim is locked, and nothing can be written of the message.
    /// `None` where it goes on although the worker drains.
    async fn fate(&self, ticket: &Ticket) -> Option<Fate> {
        let mut wait = Duration::from_millis(5);
        let mut draining = None;
        loop {
            match self.outage.persist(|| self.store.fate(ticket)).await {
                Fate::Running => {}
                fate => return Some(fate),
            }
            if self.draining.is_cancelled() && draining.get_or_insert_with(Instant::now).elapsed() > GRACE {
                return None;
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST);
        }
    }
}
