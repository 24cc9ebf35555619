//! Dead letters of messages whose handler has committed.

use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::runtime::{Charge, EarlyCommit, Pipeline, refused_wait};
use crate::store::{Identity, NewRow, StoreError, Ticket};
use crate::{BoxError, Delivery, Outcome, Reason, Store, telemetry};

use super::committed::committed;

const ERROR: &str = "the handler ran COMMIT, so some of its writes may be committed: return Ok(()), and idem commits";

/// Returns the failure of a message whose natural handler ran COMMIT in the transaction of a first delivery. It has no
/// claim, so the message is not taken for processed before the failure is recorded: if that never happens, it runs again.
pub(crate) fn committed_early(attempts: u32) -> Charge {
    Charge { attempts, next: Err(Reason::Committed), error: ERROR.to_owned() }
}

impl<S: Store> Pipeline<S> {
    /// Makes a message dead whose handler ran COMMIT. Its claim stands, so the message would count as processed if this
    /// were not written. It therefore retries until the database has responded, also while the worker stops, for as
    /// long as that permits.
    ///
    /// If the database refuses the row, it is tried again later and elsewhere: a lane, a slot and what a suspect waits
    /// for must not be held for as long as an operator takes. A delivery that came again could not change the outcome.
    pub(crate) async fn committed_early(
        &self,
        delivery: &Delivery,
        identity: &Identity,
        attempts: u32,
        ticket: &Ticket,
    ) -> Outcome {
        let write = || self.write_early_commit(delivery, identity, attempts, ticket);
        if let Err(error) = self.outage.persist_unless_refused(write).await {
            tell_of(delivery, 1, &error);
            let passed = self.early_commits.room().is_some_and(|room| {
                let (delivery, identity, ticket) = (delivery.clone(), identity.clone(), ticket.clone());
                self.early_commits.refused(EarlyCommit { delivery, identity, attempts, ticket, room })
            });
            // The limit is reached, or the task that would write it ends: it is retried here.
            if !passed {
                self.outage.persist(write).await;
            }
        }
        Outcome::Dead { reason: Reason::Committed }
    }

    /// Writes the dead letter, unless the claim has changed since the handler's COMMIT: then it was written by a try
    /// whose answer was lost, and an operator may have replayed or discarded it since. Without a claim, which was pruned
    /// or lost with its server, nothing else remembers the message, and it is written.
    async fn write_early_commit(
        &self,
        delivery: &Delivery,
        identity: &Identity,
        attempts: u32,
        ticket: &Ticket,
    ) -> Result<(), StoreError> {
        let row = NewRow::new(identity, delivery, Err(Reason::Committed)).with_attempts(attempts, ERROR);
        let mut txn = self.store.begin(self.settings.handler_timeout).await?;
        let (handler, key) = (identity.handler, &identity.key);
        let is_left = self.store.reopen(&mut txn, handler, key, ticket).await?
            || self.store.existing_claim(&mut txn, handler, key).await?.is_none();
        let id = if is_left { Some(self.store.insert(&mut txn, &row).await?) } else { None };
        committed(self.store.commit(txn).await)?;
        match id {
            Some(_) => telemetry::tell(id, attempts, row.state, ERROR),
            None => tracing::debug!("the dead letter of a handler that ran COMMIT was written by an earlier try"),
        }
        Ok(())
    }

    /// Writes the dead letters that the database has refused, until the worker drains; then it tries each once more.
    pub(crate) async fn write_early_commits(&self) {
        let mut waits = FuturesUnordered::new();
        let (mut open, mut draining) = (true, false);
        while open || !waits.is_empty() {
            tokio::select! {
                () = self.draining.cancelled(), if !draining => {
                    draining = true;
                    self.early_commits.close();
                }
                next = self.early_commits.next(), if open => match next {
                    Some(commit) => waits.push(self.until_written(commit)),
                    None => open = false,
                },
                Some(()) = waits.next() => {}
            }
        }
    }

    async fn until_written(&self, commit: EarlyCommit) {
        let EarlyCommit { delivery, identity, attempts, ticket, room: _room } = commit;
        let mut drains = false;
        for tries in 1.. {
            drains = tokio::select! {
                () = tokio::time::sleep(refused_wait(tries - 1)) => drains,
                () = self.draining.cancelled() => true,
            };
            let write = || self.write_early_commit(&delivery, &identity, attempts, &ticket);
            match self.outage.insist_unless_refused(&self.stop, write).await {
                Some(Err(error)) if !drains => tell_of(&delivery, tries + 1, &error),
                _ => return,
            }
        }
    }
}

/// An error each time: until the dead letter is written, only the log has it.
fn tell_of(delivery: &Delivery, tries: usize, error: &BoxError) {
    tracing::error!(
        source = delivery.source(),
        message_id = delivery.message_id(),
        position = delivery.position(),
        tries,
        error = crate::error::text(error.as_ref()),
        "a handler ran COMMIT, and the dead letter of its message could not be written; until it is, the message counts as \
         processed; it is retried while this worker runs"
    );
}
