//! What an operator asks for, and what looks after the tables.

use crate::Key;

use super::{Cures, Fault, Filter, HandlerId, Level, Page, Pruned, Replayed, Row, Transactions, Waiting};

/// What people and housekeeping ask of a store.
pub trait Operator: Transactions {
    /// How full the inbox of these handlers is. Counts rows, so it is asked seldom.
    fn level(&self, handlers: &[HandlerId]) -> impl Future<Output = Result<Level, Fault>> + Send;

    /// This consumer's handlers that have inbox rows, parked or dead, and when a worker had them last.
    fn waiting(&self, consumer: &str) -> impl Future<Output = Result<Vec<Waiting>, Fault>> + Send;

    /// The SQL with which an operator takes the rows of a handler out of the way that nobody has any more; `new` is a
    /// handler of the same consumer that may have taken its place.
    fn cures(&self, consumer: &str, handler: &str, new: &str) -> Cures;

    /// The inbox rows of a consumer, newest first.
    fn list(&self, consumer: &str, filter: &Filter, page: Page)
    -> impl Future<Output = Result<Vec<Row>, Fault>> + Send;

    /// Makes a dead row due now, with no start and no token.
    fn replay(&self, consumer: &str, id: i64, force: bool) -> impl Future<Output = Result<Replayed, Fault>> + Send;

    /// Makes a conflict row due now under a key of its own: claims the new key and moves the row to it, in one
    /// transaction.
    fn replay_as(&self, consumer: &str, id: i64, key: &Key) -> impl Future<Output = Result<Replayed, Fault>> + Send;

    /// Deletes a dead row, and dates the claim that it owned, in one statement. `false` where there is no such row.
    fn discard(&self, consumer: &str, id: i64) -> impl Future<Output = Result<bool, Fault>> + Send;

    /// Deletes the claims that are older than the retention of their handler, in chunks, until none is left, and writes
    /// down how far it went in the transaction that deletes. One pruner works at a time for all handlers; another one
    /// answers at once that it did nothing.
    fn prune(&self) -> impl Future<Output = Result<Pruned, Fault>> + Send;
}
