//! The outbox of a store, for an application outside of handlers, and for an operator.

use crate::Error;
use crate::store::{By, DeadOutgoing, OutboxId, OutboxRows, OutboxStats, Page, StoreError};

/// The outbox with a name, for an application that stages messages in its own transactions: `Postgres::outbox` and
/// `Sqlite::outbox`, which have an example.
#[derive(Debug, Clone)]
pub struct StoreOutbox<S> {
    pub(crate) store: S,
    pub(crate) name: String,
}

impl<S: OutboxRows> StoreOutbox<S> {
    /// Returns the outbox with this name, for an operator, on any store.
    pub fn new(store: &S, name: impl Into<String>) -> Self {
        Self { store: store.clone(), name: name.into() }
    }

    /// Wakes the relays of this process at once. Call it after the commit of a transaction that has staged messages;
    /// otherwise a relay finds them at its next poll.
    pub fn wake(&self) {
        self.store.facts().notifier.notify();
    }

    /// Lists the dead letters: the messages that a relay has given up, newest first ([`Page::default()`]: 100).
    ///
    /// ```no_run
    /// # use idem_core::{Error, Store, StoreOutbox, store::Page};
    /// # async fn show<S: Store>(outbox: StoreOutbox<S>) -> Result<(), Error> {
    /// for dead in outbox.list(Page::default()).await? {
    ///     println!("{} to {} after {} attempts: {}", dead.id, dead.message.to(), dead.attempts, dead.error);
    ///     outbox.replay(dead.id).await?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The database, or the tables of the outbox in it, cannot be used.
    pub async fn list(&self, page: Page) -> Result<Vec<DeadOutgoing>, Error> {
        let outbox = self.id().await?;
        self.store.dead_outgoing(outbox, page).await.map_err(|fault| failed("list the dead letters", fault))
    }

    /// Stages a dead letter again, under the same message id and with all its attempts, behind all other messages of its
    /// key. Returns `false` if there is no such dead letter (any more).
    ///
    /// # Errors
    /// The database, or the tables of the outbox in it, cannot be used.
    pub async fn replay(&self, id: i64) -> Result<bool, Error> {
        let outbox = self.id().await?;
        let replayed = self.store.remove_dead_outgoing(outbox, &[id], true, &By::user()).await;
        let replayed = replayed.map_err(|fault| failed("replay a dead letter", fault))?;
        self.wake();
        Ok(!replayed.is_empty())
    }

    /// Deletes a dead letter permanently. Returns `false` if there is no such dead letter (any more).
    ///
    /// # Errors
    /// The database, or the tables of the outbox in it, cannot be used.
    pub async fn discard(&self, id: i64) -> Result<bool, Error> {
        let outbox = self.id().await?;
        let discarded = self.store.remove_dead_outgoing(outbox, &[id], false, &By::user()).await;
        let discarded = discarded.map_err(|fault| failed("discard a dead letter", fault))?;
        Ok(!discarded.is_empty())
    }

    /// Returns the fill level of the outbox, counted up to `limit` messages.
    ///
    /// # Errors
    /// The database, or the tables of the outbox in it, cannot be used.
    pub async fn stats(&self, limit: u64) -> Result<OutboxStats, Error> {
        let outbox = self.id().await?;
        self.store.outbox_stats(outbox, limit).await.map_err(|fault| failed("count", fault))
    }

    async fn id(&self) -> Result<OutboxId, Error> {
        self.store.register_outbox(&self.name).await
    }
}

fn failed(what: &str, fault: StoreError) -> Error {
    Error::database(format!("could not {what} of an outbox"), fault)
}
