//! Queries for operators, and maintenance of the tables.

use uuid::Uuid;

use crate::Key;

use super::{
    Filter, HandlerId, HandlerRows, Page, Pruned, Remedies, Replayed, Resolution, Row, Stats, StoreError, Transactions,
};

/// The methods of a store for operators and for the worker's maintenance.
pub trait Operator: Transactions {
    /// Returns the fill level of the inbox of these handlers. It counts rows, so call it rarely.
    fn stats(&self, handlers: &[HandlerId]) -> impl Future<Output = Result<Stats, StoreError>> + Send;

    /// Returns this consumer's handlers that have inbox rows, scheduled or dead, and when a worker last had them.
    fn waiting(&self, consumer: &str) -> impl Future<Output = Result<Vec<HandlerRows>, StoreError>> + Send;

    /// Returns SQL with which an operator can deal with what belongs to a handler that no worker has any more; `new` is the
    /// handler of the same consumer that has replaced it, if one has.
    fn cures(&self, consumer: &str, handler: &str, new: &str) -> Remedies;

    /// Returns the names of all consumers that a worker has ever had, in their order.
    fn consumers(&self) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;

    /// Lists the inbox rows of a consumer, newest first. The key is one of [`Filter::keys`].
    fn list(
        &self,
        consumer: &str,
        filter: &Filter,
        page: Page,
    ) -> impl Future<Output = Result<Vec<Row>, StoreError>> + Send;

    /// Makes a dead row due now, with no attempt, no start and no token. A row whose external call may have begun,
    /// and that has no answer, goes back to its call phase, with its key, and is due when its lease has ended.
    fn replay(&self, consumer: &str, id: i64, force: bool)
    -> impl Future<Output = Result<Replayed, StoreError>> + Send;

    /// Makes a conflict row due now under a new key: claims the key and moves the row to it, in one transaction.
    fn replay_as(
        &self,
        consumer: &str,
        id: i64,
        key: &Key,
    ) -> impl Future<Output = Result<Replayed, StoreError>> + Send;

    /// Deletes a dead row, and sets `processed_at` of the claim that it owned, in one statement. `false` if there is no
    /// such row, or if its external call has begun or has an answer.
    fn discard(&self, consumer: &str, id: i64) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Does what an operator has decided about a dead row whose external call has this key: the row is due now with this
    /// answer, or, once its lease has ended, with the [next key](super::next_provider_key) and no call begun, or discarded. `false`
    /// if there is no such row, or if it is to be called again although it has an answer.
    fn resolve(
        &self,
        consumer: &str,
        id: i64,
        provider_key: Uuid,
        resolution: &Resolution,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Deletes claims that are older than the retention of their handler, in small transactions, each of which also
    /// records the cutoff. Only one pruner works at a time, for all handlers; a second one returns immediately and reports
    /// that it did nothing.
    ///
    /// A store may look at a part of its claims in each call, and continue there in the next one, as long as it deletes a
    /// claim at most a twentieth of the retention late, if it is called once a minute. Those of this crate walk through
    /// the table of claims, up to some 100,000 claims at once.
    fn prune(&self) -> impl Future<Output = Result<Pruned, StoreError>> + Send;
}
