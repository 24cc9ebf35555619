//! The dead letter of a message whose handler ran COMMIT, and so has committed its claim.

use tokio_util::sync::CancellationToken;

use crate::execute::Failure;
use crate::runtime::{Pipeline, refused};
use crate::store::{Identity, NewRow, StoreError, Ticket};
use crate::{BoxError, Delivery, Outcome, Reason, Store, telemetry};

use super::committed::committed;

impl<S: Store> Pipeline<S> {
    /// Makes a message dead whose handler has committed its claim. Until this is written, the message counts as processed,
    /// also if it is delivered again. It therefore retries until the database has responded, also while the worker stops,
    /// for as long as that permits.
    ///
    /// # Errors
    /// The database refuses the row.
    pub(crate) async fn record_early_commit(
        &self,
        delivery: &Delivery,
        identity: &Identity,
        charge: &Failure,
        left_by: &Ticket,
    ) -> Result<Outcome, BoxError> {
        let write = || self.write_early_commit(delivery, identity, charge, left_by);
        let never = CancellationToken::new();
        let written = self.outage.insist(&never, || async { refused(write().await) }).await;
        if let Some(Err(error)) = written {
            // Until it is written, only the log has it.
            tracing::error!(
                source = delivery.source(),
                message_id = delivery.message_id(),
                position = delivery.position(),
                error = crate::error::text(error.as_ref()),
                "a handler ran COMMIT, and the dead letter of its message could not be written; until it is, the message \
                 counts as processed; it is retried while this worker runs"
            );
            return Err(error);
        }
        Ok(Outcome::Dead { reason: Reason::Committed })
    }

    /// Writes the dead letter, unless the claim has changed since the handler's COMMIT: then it was written by a try
    /// whose answer was lost, and an operator may have replayed or discarded it since. Without a claim, which was pruned
    /// or lost with its server, nothing else remembers the message, and it is written.
    async fn write_early_commit(
        &self,
        delivery: &Delivery,
        identity: &Identity,
        charge: &Failure,
        left_by: &Ticket,
    ) -> Result<(), StoreError> {
        let row = NewRow::new(identity, delivery, charge.next).with_attempts(charge.attempts, &charge.error);
        let mut txn = self.store.begin(self.settings.handler_timeout).await?;
        let is_left = self.store.reopen(&mut txn, identity, left_by).await?
            || self.store.existing_claims(&mut txn, &[identity]).await? == [None];
        let id = if is_left { self.store.insert(&mut txn, &[row]).await?.pop() } else { None };
        committed(self.store.commit(txn).await)?;
        match id {
            Some(_) => telemetry::tell(id, charge.attempts, charge.next, &charge.error),
            None => tracing::debug!("the dead letter of a handler that ran COMMIT was written by an earlier try"),
        }
        Ok(())
    }
}
