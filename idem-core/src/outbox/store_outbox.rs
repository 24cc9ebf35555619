//! The outbox of a store, for an application outside of handlers.

use crate::store::OutboxRows;

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
        self.store.facts().bell.ring();
    }
}
