//! The outbox: messages are staged in a transaction, and read, published and deleted by a relay.

use std::time::Duration;

use uuid::Uuid;

use crate::Error;
use crate::outbox::StagedMessage;

use super::{
    Answer, By, DeadOutgoing, LeaseAnswer, LeaseRequest, LocalMessage, OutboxFound, OutboxId, OutboxRead, OutboxStats,
    Page, PublishFailure, RowRef, Transactions, UnreadOutbox,
};

/// The messages of an outbox.
///
/// A relay publishes only while it has the lease of the outbox, under a token that is its own. Each method except
/// [`stage`](Self::stage) is one committed statement or transaction.
pub trait OutboxRows: Transactions {
    /// Interns the name of an outbox. Called at the start of whatever uses an outbox. The number is a hash of the name, so that
    /// the name gets it again if its row was lost by a restore.
    ///
    /// # Errors
    /// [`Error::Database`] if the database cannot be used.
    fn register_outbox(&self, name: &str) -> impl Future<Output = Result<OutboxId, Error>> + Send;

    /// Stages messages, in memory: [`commit`](Transactions::commit) writes them after its guard. If it does nothing,
    /// they are dropped.
    ///
    /// `outgoing` for relays: in their order, and behind those that were staged before.
    ///
    /// `local` for handlers of the same consumer, once in a transaction, by the rules by which deliveries are stored. One whose
    /// claim is new gets an undated claim and an inbox row that is due now, by the clock and not since the begin of the
    /// transaction. One whose claim exists with its fingerprint is skipped; with another one, it gets a dead row with the error
    /// [`LOCAL_CONFLICT`](super::LOCAL_CONFLICT) and no claim, and the claim is held until the commit (`FOR KEY SHARE`). If a claim
    /// was made or removed after the statement that looks for it began, also while it waited, the commit is a
    /// [`CommitResult::Retry`](super::CommitResult::Retry). If another transaction holds a claim of theirs for too long, it is a
    /// [`CommitResult::Busy`](super::CommitResult::Busy). They are sorted by handler and by the bytes of the key. No two have the
    /// same identity; of several with one key, the first claims it.
    fn stage(&self, txn: &mut Self::Txn, outbox: OutboxId, outgoing: Vec<StagedMessage>, local: Vec<LocalMessage>);

    /// Fetches, renews or releases the lease of an outbox. A relay that finds it taken writes nothing, and waits for no
    /// transaction.
    fn lease_outbox(
        &self,
        outbox: OutboxId,
        token: Uuid,
        request: LeaseRequest,
    ) -> impl Future<Output = Answer<LeaseAnswer>> + Send;

    /// Reads messages that are committed, due or not; and then draws a mark, if one is asked for. The database may commit a lower
    /// id after a higher one: then the answer has a [snapshot](OutboxFound::snapshot), by which the relay knows what to read
    /// again. Otherwise nobody may draw an id while another transaction that has drawn one is open.
    fn read_outbox(&self, outbox: OutboxId, read: &OutboxRead) -> impl Future<Output = Answer<OutboxFound>> + Send;

    /// Deletes messages that the broker has confirmed, if the lease is held under this token. Returns how many it has deleted.
    fn delete_published(
        &self,
        outbox: OutboxId,
        token: Uuid,
        published: &[RowRef],
    ) -> impl Future<Output = Answer<u64>> + Send;

    /// Records failures: the number of attempts, and when the next one is due, or a dead letter. It changes nothing if the
    /// lease is not held under this token. Recording a failure again counts no further attempt: its answer may be lost.
    fn record_failures(
        &self,
        outbox: OutboxId,
        token: Uuid,
        failures: &[PublishFailure],
    ) -> impl Future<Output = Answer<()>> + Send;

    /// Returns the fill level of an outbox. It counts up to `limit` messages, so call it rarely; with 0, it only says
    /// when a relay was last seen, and is quick.
    fn outbox_stats(&self, outbox: OutboxId, limit: u64) -> impl Future<Output = Answer<OutboxStats>> + Send;

    /// Returns the outboxes that no relay has looked at for so long, and of which a message is older than that. It counts up to
    /// `limit` messages of each.
    fn unread_outboxes(&self, patience: Duration, limit: u64)
    -> impl Future<Output = Answer<Vec<UnreadOutbox>>> + Send;

    /// Lists the dead letters of an outbox, newest first.
    fn dead_outgoing(&self, outbox: OutboxId, page: Page) -> impl Future<Output = Answer<Vec<DeadOutgoing>>> + Send;

    /// Deletes the dead letters with these ids, and notes each in the table `operations`, in the same statement or transaction.
    /// `again`: stages them again under the same message ids, behind all other messages of their keys, in the order of their ids.
    /// Returns the ids of those that it has deleted; the others are gone, or another operator deletes them.
    fn remove_dead_outgoing(
        &self,
        outbox: OutboxId,
        ids: &[i64],
        again: bool,
        by: &By,
    ) -> impl Future<Output = Answer<Vec<i64>>> + Send;
}
