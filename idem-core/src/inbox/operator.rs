//! The operator's interface to the inbox.

use crate::store::{Filter, Page, Replayed, Row, StoreError};
use crate::{Error, Key, Store};

/// The inbox of one consumer, for an operator: list, replay, discard. It needs no worker.
///
/// Every method is one committed statement or transaction. If its future is dropped, the work may or may not have been
/// done; each method can be repeated.
#[derive(Debug, Clone)]
pub struct Inbox<S> {
    store: S,
    consumer: String,
}

impl<S: Store> Inbox<S> {
    /// Returns the inbox of this consumer.
    pub fn new(store: &S, consumer: impl Into<String>) -> Self {
        Self { store: store.clone(), consumer: consumer.into() }
    }

    /// Returns the rows that match, newest first; all dead letters by default.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn list(&self, filter: &Filter, page: Page) -> Result<Vec<Row>, Error> {
        self.store.list(&self.consumer, filter, page).await.map_err(|fault| failed("list the inbox", fault))
    }

    /// Makes a dead letter due now. Its claim is kept throughout, so nothing else can process the message, and a second
    /// replay finds nothing to do. It runs out of order.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn replay(&self, id: i64) -> Result<Replayed, Error> {
        self.store.replay(&self.consumer, id, false).await.map_err(|fault| failed("replay a dead letter", fault))
    }

    /// Replays a dead letter whose handler had run COMMIT, or that was too old to determine whether it was processed.
    /// Effects that are already committed are written again, unless the handler checks for them.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn replay_by_force(&self, id: i64) -> Result<Replayed, Error> {
        self.store.replay(&self.consumer, id, true).await.map_err(|fault| failed("replay a dead letter", fault))
    }

    /// Replays a conflict under `key`, which is claimed for it.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn replay_as(&self, id: i64, key: &Key) -> Result<Replayed, Error> {
        self.store.replay_as(&self.consumer, id, key).await.map_err(|fault| failed("replay a dead letter", fault))
    }

    /// Deletes a dead letter permanently. Its claim is kept and dated now, so that late copies are still duplicates.
    /// Returns `false` if there is no such dead letter (any more).
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn discard(&self, id: i64) -> Result<bool, Error> {
        self.store.discard(&self.consumer, id).await.map_err(|fault| failed("discard a dead letter", fault))
    }
}

fn failed(what: &str, fault: StoreError) -> Error {
    Error::Database { what: format!("could not {what}"), source: fault.into() }
}
