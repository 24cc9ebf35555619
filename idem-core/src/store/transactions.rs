//! Transactions: begun, passed to a handler, guarded, ended.

use std::time::Duration;

use crate::Error;

use super::{CommitResult, ConnectionShare, Fate, RollbackResult, StoreError, Ticket, TxnState};

/// The transactions of a store, and its connections.
pub trait Transactions: Clone + Send + Sync + 'static {
    /// An open transaction, on an exclusive connection. Dropping it closes the connection, so that the database rolls
    /// back. This is how a transaction ends if the connection's state is unknown (a cancelled or panicked handler).
    type Txn: Send + 'static;

    /// Describes the database for the log, without a password; by default the name of the store's type.
    fn describe(&self) -> String {
        std::any::type_name::<Self>().to_owned()
    }

    /// Pings the database, on a new connection if no open one is known to work.
    fn ping(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Adds a worker that can use this many connections at once, until the value is dropped. The workers of a store
    /// share its connections, and wait for each other where it has fewer. The store must keep one for its own
    /// statements, so that the leases of messages whose handlers use all others are extended.
    ///
    /// # Errors
    /// The store has too few connections for one worker. The text tells how to get more.
    fn share_connections(&self, connections: usize) -> Result<ConnectionShare, Error>;

    /// Begins a transaction. No statement in it may run for longer than `handler_timeout`; in a batch the
    /// longest timeout of its handlers.
    fn begin(&self, handler_timeout: Duration) -> impl Future<Output = Result<Self::Txn, StoreError>> + Send;

    /// Begins a transaction for one handler, whose message has no claim, and guards it. A store that can do both in one
    /// round trip saves one.
    ///
    /// On a fault, no transaction is left open.
    fn begin_guarded(&self, handler_timeout: Duration) -> impl Future<Output = Result<Self::Txn, StoreError>> + Send {
        async move {
            let mut txn = self.begin(handler_timeout).await?;
            match self.guard(&mut txn).await {
                Ok(()) => Ok(txn),
                Err(fault) if !fault.is_answered() => Err(fault),
                Err(fault) => self.rollback(txn).await.and(Err(fault)),
            }
        }
    }

    /// Guards a transaction in which messages run without claims: [`commit`](Self::commit) and
    /// [`rollback`](Self::rollback) find out whether a handler has ended it, as they do if a claim was inserted. It need not
    /// refuse the COMMIT of a handler, even if several share it: their messages run again. If the transaction has claims
    /// of [`claim`](super::Claims::claim), this does nothing.
    fn guard(&self, txn: &mut Self::Txn) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Called between two handlers that share a transaction, to prepare it for the next one. Returns whether the
    /// previous handler has left the transaction open. A store in which nothing can be written outside a transaction
    /// may leave this check to the guard.
    fn check_between(&self, _txn: &mut Self::Txn) -> impl Future<Output = Result<TxnState, StoreError>> + Send {
        async { Ok(TxnState::Unknown) }
    }

    /// Checks that the transaction is still the one in which the claim was inserted or the row was started, or that was
    /// [guarded](Self::guard) without either, and commits. Any other transaction is not checked.
    fn commit(&self, txn: Self::Txn) -> impl Future<Output = CommitResult> + Send;

    /// Returns whether a handler's error reports a conflict with a concurrent transaction (40001, 40P01), so that a new
    /// transaction may succeed. An error that hides its sources is treated as an ordinary failure.
    fn lost_race(&self, _error: &(dyn std::error::Error + 'static)) -> bool {
        false
    }

    /// Returns whether the conflict was a deadlock (40P01), which always involves another transaction. A handler can
    /// cause any other conflict itself, on every run, so these say nothing about concurrent batches.
    fn deadlocked(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.lost_race(error)
    }

    /// Called with the error of a handler, before the [`rollback`](Self::rollback). If the error says that its session is
    /// outdated, so that the same statements fail in it each time, the store closes the connection behind the rollback,
    /// instead of lending it to the next message. Returns whether the message runs again at once, uncharged: not if the
    /// session was new, for then the next one would have the same error. By default, it does nothing.
    fn failed_with(&self, _txn: &mut Self::Txn, _error: &(dyn std::error::Error + 'static)) -> bool {
        false
    }

    /// Rolls back. [`StoreError::ConnectionLost`] means that the connection is lost; the transaction then ends by
    /// itself. If a claim was inserted, a row was started or the transaction is [guarded](Self::guard), the result tells
    /// whether the handler had committed it before it failed.
    fn rollback(&self, txn: Self::Txn) -> impl Future<Output = Result<RollbackResult, StoreError>> + Send;

    /// Identifies the transaction for the case that its connection is lost. `None` if it can only have been rolled
    /// back: no claim was inserted, no row was started in it and it is not [guarded](Self::guard), or no handler can commit it and this one has not
    /// tried.
    fn ticket(&self, _txn: &Self::Txn) -> Option<Ticket> {
        None
    }

    /// Asks on another connection how a transaction ended that was dropped while a handler used it. If it still runs,
    /// the store may end it.
    ///
    /// # Errors
    /// The database did not answer; the caller asks again.
    fn fate(&self, _ticket: &Ticket) -> impl Future<Output = Result<Fate, StoreError>> + Send {
        async { Ok(Fate::RolledBack) }
    }
}
