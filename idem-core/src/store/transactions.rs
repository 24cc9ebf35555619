//! Transactions: begun, with claims or without, passed to a handler, guarded, ended.

use std::time::Duration;

use super::{
    Answer, ClaimState, Claimed, CommitResult, ErrorClass, ExistingClaim, Identity, StoreFacts, TxnHandle, TxnOutcome,
    TxnState,
};

/// The transactions of a store, and the claims in them.
///
/// Each statement of idem's own sees what was committed before it began (READ COMMITTED). At a stricter level, one that
/// misses a commit fails with [`StoreError::Serialization`](super::StoreError::Serialization).
///
/// The store lends the transaction to handlers. A careless one ends it by COMMIT or ROLLBACK, ignores the error of either, and
/// begins another one. The store refuses what is written behind such an end, because it would be written again when the message
/// runs again; or, where the database cannot refuse it, [`check_between`](Self::check_between) finds it out before the next
/// handler runs. If a handler ends the transaction several times, the first end is the one that is reported.
pub trait Transactions: Clone + Send + Sync + 'static {
    /// An open transaction, on an exclusive connection. Dropping it closes the connection, so that the database rolls
    /// back. This is how a transaction ends if the connection's state is unknown (a cancelled or panicked handler).
    type Txn: Send + 'static;

    /// Returns what the store is, and what its clones share in this process.
    fn facts(&self) -> &StoreFacts;

    /// Pings the database, on a new connection if no open one is known to work. It writes and commits as a worker does, because a
    /// full or read-only database answers reads; unless it finds another task or process at that.
    fn ping(&self) -> impl Future<Output = Answer<()>> + Send;

    /// Begins a transaction. No statement in it may run for longer than `handler_timeout`; in a batch the
    /// longest timeout of its handlers.
    fn begin(&self, handler_timeout: Duration) -> impl Future<Output = Answer<Self::Txn>> + Send;

    /// Begins a transaction for one message that was not stored before, in one round trip if the database supports it: with
    /// its claim, as [processed](ClaimState::Processed), or, if there is none, guarded without a claim, which is
    /// [`Claimed::New`]. The store need not refuse the COMMIT of the handler: the guard finds it out.
    ///
    /// It waits for an uncommitted claim as [`claim`](Self::claim) does, but for up to a second. On a fault, no transaction is left
    /// open.
    fn begin_first(
        &self,
        handler_timeout: Duration,
        claim: Option<&Identity>,
    ) -> impl Future<Output = Answer<(Self::Txn, Claimed)>> + Send;

    /// Inserts the claims that are not there yet, and reads how far claims of their handlers were pruned, in one statement
    /// if the database supports it; the results are in the order given. It sees either a claim or the cutoff that prune wrote
    /// when it deleted the claim. No two identities have the same handler and key, and they are sorted by handler and by the
    /// bytes of the key: claims are inserted in that order, so that two transactions never deadlock.
    ///
    /// After [`ClaimState::Processed`], the handlers of all new messages share the transaction, so the store has to refuse every
    /// COMMIT of a handler: it would commit claims of messages that have not run. A message that has the transaction for itself
    /// [begins with its claim](Self::begin_first).
    ///
    /// It waits for another transaction's uncommitted claim, for a tenth of a second, because all other messages of the batch wait
    /// with it. If one is locked for too long, the whole call fails with [`StoreError::LockTimeout`](super::StoreError::LockTimeout); the database does not report
    /// which claim it was. It never waits for a committed claim, which the run of an inbox row may be dating: that one is found,
    /// as it was committed.
    ///
    /// Without identities, it guards the transaction for messages that run without claims, unless a new claim has done so:
    /// [`commit`](Self::commit) and [`rollback`](Self::rollback) find out whether a handler has ended it. It need not refuse the
    /// COMMIT of such a handler, even if several share the transaction: their messages run again.
    fn claim(
        &self,
        txn: &mut Self::Txn,
        identities: &[&Identity],
        state: ClaimState,
    ) -> impl Future<Output = Answer<Vec<Claimed>>> + Send;

    /// Reads the claims; the results are in the order given, and `None` for a message that has no claim, or no longer one. The
    /// identities are sorted as for [`claim`](Self::claim).
    ///
    /// `lock`: locks them against deletion until the transaction ends (`FOR KEY SHARE`), so that [`prune`](super::Consumers::prune)
    /// skips them. It does not wait for the run of an inbox row that dates a claim, and reads that claim as it was committed.
    /// Without it, the read needs no write and so no disk flush at commit, and is enough to recognize a copy.
    fn existing_claims(
        &self,
        txn: &mut Self::Txn,
        identities: &[&Identity],
        lock: bool,
    ) -> impl Future<Output = Answer<Vec<Option<ExistingClaim>>>> + Send;

    /// Sets the claim back to waiting, because an inbox row is about to own it, if it still is as the transaction with
    /// this handle left it. `false` if it is not: its row was written before, and the answer was lost; since then, an
    /// operator may have replayed or discarded the message.
    fn reopen(
        &self,
        txn: &mut Self::Txn,
        identity: &Identity,
        left_by: &TxnHandle,
    ) -> impl Future<Output = Answer<bool>> + Send;

    /// Called between two handlers that share a transaction, to prepare it for the next one. Returns whether the
    /// previous handler has left the transaction open. A store in which nothing can be written outside a transaction
    /// may leave this check to the guard.
    fn check_between(&self, txn: &mut Self::Txn) -> impl Future<Output = Answer<TxnState>> + Send;

    /// Checks that the transaction is still the one in which the claim was inserted or the row was started, or that was
    /// guarded without either, and commits. Any other transaction is not checked.
    fn commit(&self, txn: Self::Txn) -> impl Future<Output = CommitResult> + Send;

    /// Classifies the error of a handler by its transaction. An error that hides its sources is an ordinary one, and so is one that
    /// panics when it is asked for them: `chain` of `crate::error` walks them.
    ///
    /// `txn`: that of the handler, before its [`rollback`](Self::rollback); `None` after it. If the error says that its
    /// session is outdated, so that the same statements fail in it each time, the store closes the connection after the
    /// rollback, instead of lending it to the next message.
    fn classify_error(&self, txn: Option<&mut Self::Txn>, error: &(dyn std::error::Error + 'static)) -> ErrorClass;

    /// Rolls back. [`StoreError::ConnectionLost`](super::StoreError::ConnectionLost) means that the connection is lost; the transaction then ends by
    /// itself. If a claim was inserted, a row was started or the transaction is guarded, the result shows
    /// whether the handler had committed it before it failed.
    fn rollback(&self, txn: Self::Txn) -> impl Future<Output = Answer<TxnOutcome>> + Send;

    /// Identifies the transaction for the case that its connection is lost. `None` if it can only have been rolled
    /// back: no claim was inserted, no row was started in it and it is not guarded, or no handler can commit it and this one
    /// has not tried. A store that refuses every COMMIT returns one after a try, so that the try is known although the connection
    /// is lost: [`txn_outcome`](Self::txn_outcome) then says [`TxnOutcome::CommitRefused`].
    fn txn_handle(&self, txn: &Self::Txn) -> Option<TxnHandle>;

    /// Asks on another connection how a transaction ended that was dropped while a handler used it.
    ///
    /// # Errors
    /// The database did not answer; the caller asks again.
    fn txn_outcome(&self, txn_handle: &TxnHandle) -> impl Future<Output = Answer<TxnOutcome>> + Send;
}
