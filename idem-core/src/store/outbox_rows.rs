//! The outbox: messages are staged in a transaction, and read, published and deleted by a relay.

use std::time::Duration;

use uuid::Uuid;

use crate::Error;
use crate::outbox::{Bell, StagedMessage};

use super::{
    DeadOutgoing, LeaseAnswer, LeaseRequest, LocalMessage, OutboxFound, OutboxId, OutboxRead, OutboxStats, Page,
    PublishFailure, RowRef, StoreError, Transactions, UnreadOutbox,
};

type Answer<T> = Result<T, StoreError>;

/// The messages of an outbox. A store without an outbox keeps the defaults, which refuse.
///
/// A relay publishes only while it has the lease of the outbox, under a token that is its own. Each method except
/// [`stage`](Self::stage) is one committed statement or transaction.
pub trait OutboxRows: Transactions {
    /// Interns the name of an outbox. Called at the start of whatever uses an outbox.
    ///
    /// # Errors
    /// [`Error::Config`] if the store has no outbox; the text names the fix. [`Error::Database`] if the database cannot be
    /// used.
    fn register_outbox(&self, _name: &str) -> impl Future<Output = Result<OutboxId, Error>> + Send {
        async { Err(Error::Config("this store has no outbox: use a store that implements `OutboxRows`".to_owned())) }
    }

    /// Stages messages: [`commit`](Transactions::commit) writes them behind its guard, in their order and behind those
    /// that were staged before. If the commit does nothing, they are dropped.
    ///
    /// # Errors
    /// The store has no outbox.
    fn stage(&self, _txn: &mut Self::Txn, _outbox: OutboxId, _messages: Vec<StagedMessage>) -> Answer<()> {
        Err(none())
    }

    /// Checks whether a relay can run on this store.
    ///
    /// # Errors
    /// [`Error::Config`] if it has too few connections; the text names the fix.
    fn check_relay(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Stages messages for handlers of the same consumer, once in a transaction: [`commit`](Transactions::commit) writes
    /// them behind its guard, by the rules by which deliveries are stored. One whose claim is new gets an undated claim and
    /// an inbox row that is due now, by the clock and not since the begin of the transaction. One whose claim exists with
    /// its fingerprint is skipped; with another one, it gets a dead row with the error [`LOCAL_CONFLICT`](super::LOCAL_CONFLICT)
    /// and no claim, and the claim is held until the commit (`FOR KEY SHARE`). If a claim was made or removed meanwhile, the
    /// commit is a [`CommitResult::Retry`](super::CommitResult::Retry). If another transaction holds a claim of theirs for
    /// too long, it is a [`CommitResult::Busy`](super::CommitResult::Busy).
    ///
    /// They are sorted by handler and by the bytes of the key. No two have the same identity; of several with one key, the
    /// first claims it.
    ///
    /// # Errors
    /// The store has no local messages.
    fn stage_local(&self, _txn: &mut Self::Txn, _messages: Vec<LocalMessage>) -> Answer<()> {
        Err(StoreError::Unavailable("this store has no local messages".into()))
    }

    /// The bell that wakes the relays of this process; clones of a store share it. `None` if the store has no outbox.
    fn bell(&self) -> Option<&Bell> {
        None
    }

    /// Takes, renews or gives back the lease of an outbox. A relay that finds it taken writes nothing, and waits for no
    /// transaction.
    fn lease_outbox(
        &self,
        _outbox: OutboxId,
        _token: Uuid,
        _request: LeaseRequest,
    ) -> impl Future<Output = Answer<LeaseAnswer>> + Send {
        async { Err(none()) }
    }

    /// Reads messages that are committed, due or not; and then draws a mark, if one is asked for.
    fn read_outbox(
        &self,
        _outbox: OutboxId,
        _read: OutboxRead<'_>,
    ) -> impl Future<Output = Answer<OutboxFound>> + Send {
        async { Err(none()) }
    }

    /// Deletes messages that the broker has confirmed, if the lease is held under this token. Returns how many it has deleted.
    fn delete_published(
        &self,
        _outbox: OutboxId,
        _token: Uuid,
        _published: &[RowRef],
    ) -> impl Future<Output = Answer<u64>> + Send {
        async { Err(none()) }
    }

    /// Records failures: the number of attempts, and when the next one is due, or a dead letter. It changes nothing if the
    /// lease is not held under this token. Recording a failure again counts no further attempt: its answer may be lost.
    fn record_failures(
        &self,
        _outbox: OutboxId,
        _token: Uuid,
        _failures: &[PublishFailure],
    ) -> impl Future<Output = Answer<()>> + Send {
        async { Err(none()) }
    }

    /// Returns the fill level of an outbox. It counts up to `limit` messages, so call it rarely; with 0, it only tells when a relay
    /// was last seen, and is quick.
    fn outbox_stats(&self, _outbox: OutboxId, _limit: u64) -> impl Future<Output = Answer<OutboxStats>> + Send {
        async { Err(none()) }
    }

    /// Returns the outboxes that no relay has looked at for so long, and of which a message is older than that. It counts up to
    /// `limit` messages of each.
    fn unread_outboxes(
        &self,
        _patience: Duration,
        _limit: u64,
    ) -> impl Future<Output = Answer<Vec<UnreadOutbox>>> + Send {
        async { Ok(Vec::new()) }
    }

    /// Lists the dead letters of an outbox, newest first.
    fn dead_outgoing(&self, _outbox: OutboxId, _page: Page) -> impl Future<Output = Answer<Vec<DeadOutgoing>>> + Send {
        async { Err(none()) }
    }

    /// Stages a dead letter again under the same message id, behind all other messages of its key. `false` if there is no
    /// such dead letter.
    fn replay_outgoing(&self, _outbox: OutboxId, _id: i64) -> impl Future<Output = Answer<bool>> + Send {
        async { Err(none()) }
    }

    /// Deletes a dead letter. `false` if there is none with this id.
    fn discard_outgoing(&self, _outbox: OutboxId, _id: i64) -> impl Future<Output = Answer<bool>> + Send {
        async { Err(none()) }
    }
}

/// The error of a store without an outbox.
fn none() -> StoreError {
    StoreError::Unavailable("this store has no outbox".into())
}
