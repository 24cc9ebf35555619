//! Transactions: begun, lent to a handler, guarded, ended.

use std::time::Duration;

use crate::Error;

use super::{Committed, Fate, Fault, Reservation, Ticket, Undone};

/// The transactions of a store, and its connections.
pub trait Transactions: Clone + Send + Sync + 'static {
    /// An open transaction, on a connection that nothing else uses. Dropping it closes the connection, which makes the
    /// database roll back: the way out where the connection's state is unknown (a cancelled or panicked handler).
    type Txn: Send + 'static;

    /// Asks the database for a sign of life, on a new connection where none is known to be good.
    fn ping(&self) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Sets connections aside for a worker: as many as it can use at once. They are given back when the value is
    /// dropped.
    ///
    /// # Errors
    /// The store has fewer connections left than that. The text says how to get more.
    fn reserve(&self, connections: usize) -> Result<Reservation, Error>;

    /// Begins. No statement in the transaction may run for longer than `deadline`, which is a handler's.
    fn begin(&self, deadline: Duration) -> impl Future<Output = Result<Self::Txn, Fault>> + Send;

    /// Called between two handlers that share a transaction, to get it ready for the next one. `false` where the handler
    /// before has ended or aborted it, and it is known here: then nothing more may run in it. A store in which nothing can
    /// be written outside of its transactions may leave that to the guard.
    fn between(&self, _txn: &mut Self::Txn) -> impl Future<Output = Result<bool, Fault>> + Send {
        async { Ok(true) }
    }

    /// Checks that the transaction is still the one in which the claim was made or the row was started (the guard), and
    /// commits. Without claim or start there is nothing to guard.
    fn commit(&self, txn: Self::Txn) -> impl Future<Output = Committed> + Send;

    /// Whether a handler's error says that it lost against a concurrent transaction (40001, 40P01), so that a new
    /// transaction may succeed. An error that hides its sources is an ordinary failure.
    fn lost_race(&self, _error: &(dyn std::error::Error + 'static)) -> bool {
        false
    }

    /// Whether the lost race was a deadlock (40P01), for which another transaction is needed. Any other one can be of the
    /// handler's own making, each time that it runs, and says nothing about the batches beside it.
    fn deadlocked(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.lost_race(error)
    }

    /// Rolls back. [`Fault::Lost`] means that the connection is lost; the transaction then ends by itself.
    /// Where a claim was made or a row started, it looks whether the handler had committed that before it failed.
    fn rollback(&self, txn: Self::Txn) -> impl Future<Output = Result<Undone, Fault>> + Send;

    /// What the transaction is known by when its connection is gone. `None` where it can only have been rolled back: no
    /// claim was made and no row started in it, or no handler can commit it and this one has not tried.
    fn ticket(&self, _txn: &Self::Txn) -> Option<Ticket> {
        None
    }

    /// What became of a transaction that was dropped while it was a handler's, asked on another connection. Where it still
    /// runs, the store may end it.
    ///
    /// # Errors
    /// The database did not answer: it is asked again.
    fn fate(&self, _ticket: &Ticket) -> impl Future<Output = Result<Fate, Fault>> + Send {
        async { Ok(Fate::RolledBack) }
    }
}
