//! The outbox: messages are staged in a transaction, and read, published and deleted by a relay.

use std::time::Duration;

use uuid::Uuid;

use crate::Error;
use crate::outbox::{Bell, StagedMessage};

use super::{
    DeadOutgoing, LaneLeases, LocalMessage, OutboxFound, OutboxId, OutboxRead, OutboxStats, Page, PublishFailure,
    RowRef, StoreError, Transactions,
};

type Answer<T> = Result<T, StoreError>;

/// The messages of an outbox. A store without an outbox keeps the defaults, which refuse.
///
/// Messages are spread over lanes by their key. A relay publishes only from lanes that it has leased, under a token that
/// is its own. Each method except [`stage`](Self::stage) is one committed statement or transaction.
pub trait OutboxRows: Transactions {
    /// Interns the name of an outbox, and creates its lanes. Called at the start of whatever uses an outbox.
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

    /// How many lanes an outbox has, numbered from 0.
    fn outbox_lanes(&self) -> u8 {
        1
    }

    /// The bell that wakes the relays of this process; clones of a store share it. `None` if the store has no outbox.
    fn bell(&self) -> Option<&Bell> {
        None
    }

    /// Records that a relay is alive for the length of a lease, and renews the leases of its lanes. Returns those that it
    /// still holds: a lane whose lease had ended, and that nobody else has taken, is still its own.
    fn renew_lanes(
        &self,
        _outbox: OutboxId,
        _token: Uuid,
        _lease: Duration,
    ) -> impl Future<Output = Answer<LaneLeases>> + Send {
        async { Err(none()) }
    }

    /// Leases up to `limit` further lanes that are free, or whose lease has ended, and returns them. It never waits for
    /// another relay that does the same.
    fn take_lanes(
        &self,
        _outbox: OutboxId,
        _token: Uuid,
        _lease: Duration,
        _limit: u32,
    ) -> impl Future<Output = Answer<Vec<u8>>> + Send {
        async { Err(none()) }
    }

    /// Gives lanes back, if they are held under this token. `None` gives all of them back, and records that the relay has
    /// ended.
    fn give_lanes(
        &self,
        _outbox: OutboxId,
        _token: Uuid,
        _lanes: Option<&[u8]>,
    ) -> impl Future<Output = Answer<()>> + Send {
        async { Err(none()) }
    }

    /// Reads messages that are committed, due or not.
    fn read_outbox(
        &self,
        _outbox: OutboxId,
        _read: OutboxRead<'_>,
    ) -> impl Future<Output = Answer<OutboxFound>> + Send {
        async { Err(none()) }
    }

    /// Deletes messages that the broker has confirmed, in those lanes that are held under this token.
    /// Returns how many it has deleted.
    fn delete_published(
        &self,
        _outbox: OutboxId,
        _token: Uuid,
        _published: &[RowRef],
    ) -> impl Future<Output = Answer<u64>> + Send {
        async { Err(none()) }
    }

    /// Records failures: the number of attempts, and when the next one is due, or a dead letter. It changes nothing in lanes
    /// that are not held under this token. Recording a failure again counts no further attempt: its answer may be lost.
    fn record_failures(
        &self,
        _outbox: OutboxId,
        _token: Uuid,
        _failures: &[PublishFailure],
    ) -> impl Future<Output = Answer<()>> + Send {
        async { Err(none()) }
    }

    /// Returns how many relays of an outbox are alive. It is quick, however many messages wait.
    fn live_relays(&self, _outbox: OutboxId) -> impl Future<Output = Answer<u32>> + Send {
        async { Err(none()) }
    }

    /// Returns the fill level of an outbox. It counts up to `limit` rows, so call it rarely.
    fn outbox_stats(&self, _outbox: OutboxId, _limit: u64) -> impl Future<Output = Answer<OutboxStats>> + Send {
        async { Err(none()) }
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
