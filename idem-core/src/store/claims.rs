//! Handlers and their claims.

use std::time::Duration;

use super::{ClaimState, Claimed, ExistingClaim, HandlerId, History, Identity, StoreError, Ticket, Transactions};

/// The handlers in a store and their claims. Claims are inserted, read and reopened in a transaction.
pub trait Claims: Transactions {
    /// Interns the names under this consumer, in the order given, and raises their retention to that of this store if
    /// it is lower. The empty name stands for "no handler known".
    fn register(
        &self,
        consumer: &str,
        names: &[&str],
    ) -> impl Future<Output = Result<Vec<HandlerId>, StoreError>> + Send;

    /// Lets both names of this consumer be one handler, whose row then has the name `new`, unless `old` has no number or
    /// nothing belongs to it. Registering either of them returns the same number from then on. `false`, and nothing is
    /// changed, if they are two handlers to each of which claims or rows belong. Repeating it changes
    /// nothing.
    fn rename(&self, consumer: &str, old: &str, new: &str) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Records that a worker has these handlers now. It never waits for another worker that does the same: it skips a
    /// handler whose row another worker has locked, or has updated within the last half minute. `false` if one of them is not
    /// in the database any more.
    fn record_seen(&self, handlers: &[HandlerId]) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Returns the handlers of this consumer that have, or have had, a claim, or whose history was
    /// [recorded](Self::record_history).
    fn histories(&self, consumer: &str) -> impl Future<Output = Result<Vec<History>, StoreError>> + Send;

    /// Records that this handler processes messages, for one whose messages may leave no claim. Called before the first
    /// such message of a process, unless [`histories`](Self::histories) has returned the handler at its start. Repeating it changes nothing.
    fn record_history(&self, handler: HandlerId) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns how long processed claims of these handlers are kept, in the order given: the greatest value with which
    /// a store has registered them, unless an operator has changed it. `None`: they are kept forever.
    fn retention(
        &self,
        handlers: &[HandlerId],
    ) -> impl Future<Output = Result<Vec<Option<Duration>>, StoreError>> + Send;

    /// Inserts the claims that are not there yet, and reads how far claims of their handlers were pruned, in one statement
    /// if the database supports it; the results are in the order given. It sees either a claim or the cutoff that prune wrote
    /// when it deleted the claim. No two identities have the same handler and key, and they are sorted by handler and by the
    /// bytes of the key: claims are inserted in that order, so that two transactions never deadlock.
    ///
    /// After [`ClaimState::Processed`], the handlers of all new messages share the transaction, so the store has to refuse every
    /// COMMIT of a handler: it would commit claims of messages that have not run. A message that has the transaction for itself
    /// [begins with its claim](Self::begin_with_claim).
    ///
    /// It waits briefly for another transaction's uncommitted claim. If one is locked for too long, the whole call fails with
    /// [`StoreError::LockTimeout`]; the database does not report which claim it was.
    fn claim(
        &self,
        txn: &mut Self::Txn,
        identities: &[&Identity],
        state: ClaimState,
    ) -> impl Future<Output = Result<Vec<Claimed>, StoreError>> + Send;

    /// Begins a transaction for one message, and claims it as [processed](ClaimState::Processed), as every first delivery does,
    /// in one round trip if the database supports it. The store need not refuse the COMMIT of its handler: the guard finds it
    /// out.
    ///
    /// On a fault, no transaction is left open.
    fn begin_with_claim(
        &self,
        handler_timeout: Duration,
        identity: &Identity,
    ) -> impl Future<Output = Result<(Self::Txn, Claimed), StoreError>> + Send;

    /// Reads the claims, and locks them against deletion until the transaction ends (`FOR KEY SHARE`); the results are in the
    /// order given, and `None` for a message that has no claim, or no longer one. The identities are sorted as for
    /// [`claim`](Self::claim).
    fn existing_claims(
        &self,
        txn: &mut Self::Txn,
        identities: &[&Identity],
    ) -> impl Future<Output = Result<Vec<Option<ExistingClaim>>, StoreError>> + Send;

    /// Reads the claims as [`existing_claims`](Self::existing_claims) does, but without locking them. This is enough to
    /// recognize a copy, and needs no write and so no disk flush at commit.
    fn unlocked_claims(
        &self,
        txn: &mut Self::Txn,
        identities: &[&Identity],
    ) -> impl Future<Output = Result<Vec<Option<ExistingClaim>>, StoreError>> + Send {
        self.existing_claims(txn, identities)
    }

    /// Sets the claim back to waiting, because an inbox row is about to own it, if it still is as the transaction with
    /// this ticket left it. `false` if it is not: its row was written before, and the answer was lost; since then, an
    /// operator may have replayed or discarded the message.
    fn reopen(
        &self,
        txn: &mut Self::Txn,
        identity: &Identity,
        left_by: &Ticket,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;
}
