//! The outbox: messages are staged in a transaction, and read, published and deleted by a relay.

use crate::outbox::{Bell, StagedMessage};

use super::{StoreError, Transactions};

/// The name of an outbox, interned as a small integer in the table `outboxes`.
// Exhaustive: it is the column's number, and stores wrap and unwrap it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OutboxId(pub i32);

/// The messages of an outbox. A store without an outbox keeps the defaults, which refuse.
pub trait OutboxRows: Transactions {
    /// Interns the name of an outbox.
    fn register_outbox(&self, _name: &str) -> impl Future<Output = Result<OutboxId, StoreError>> + Send {
        async { Err(none()) }
    }

    /// Stages messages: [`commit`](Transactions::commit) writes them behind its guard, in their order and behind those
    /// that were staged before. If the commit does nothing, they are dropped.
    ///
    /// # Errors
    /// The store has no outbox.
    fn stage(&self, _txn: &mut Self::Txn, _outbox: OutboxId, _messages: Vec<StagedMessage>) -> Result<(), StoreError> {
        Err(none())
    }

    /// The bell that wakes the relays of this process; clones of a store share it. `None` if the store has no outbox.
    fn bell(&self) -> Option<&Bell> {
        None
    }
}

/// The error of a store without an outbox.
fn none() -> StoreError {
    StoreError::Unavailable("this store has no outbox".into())
}
