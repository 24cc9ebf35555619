//! The inbox rows: inserting, taking, starting them and recording results.

use std::time::Duration;

use uuid::Uuid;

use super::{
    DueRows, HandlerId, Identity, LookBack, NewRow, Row, RowKind, RowResult, StoreError, TakeLimit, Transactions,
};

/// The inbox rows of a store. A method with a transaction as its argument is part of it; all others commit by
/// themselves.
pub trait InboxRows: Transactions {
    /// Inserts inbox rows, in one statement if the database supports it. Where one with this handler, key and fingerprint
    /// exists, counts a delivery of it instead. Returns the ids of the rows, in the order given. No two have the same handler,
    /// key and fingerprint.
    fn insert(
        &self,
        txn: &mut Self::Txn,
        rows: &[NewRow<'_>],
    ) -> impl Future<Output = Result<Vec<i64>, StoreError>> + Send;

    /// Counts a delivery of each message that has a dead row, and each copy among them. A scheduled row is not changed.
    fn count_duplicates(
        &self,
        txn: &mut Self::Txn,
        identities: &[&Identity],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Starts taken rows: deletes them and sets the `processed_at` of their claims, in one statement if the database supports
    /// it. The results are in the order given: `false` if the row no longer has this token, because the lease was lost. If it
    /// is more than one, the store has to refuse every COMMIT of a handler, as after [`claim`](super::Claims::claim).
    fn start(&self, txn: &mut Self::Txn, rows: &[&Row]) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;

    /// Deletes a taken row without touching claims. `false` if the row no longer has this token.
    fn remove(&self, txn: &mut Self::Txn, row: &Row) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Returns the pending work of these handlers. It is cheap with any number of rows, because every poll calls it. `since`:
    /// only rows that became due since then, for a store that has to skip deleted entries before it finds existing ones.
    fn poll_due(
        &self,
        handlers: &[HandlerId],
        lease: Duration,
        since: LookBack,
    ) -> impl Future<Output = Result<DueRows, StoreError>> + Send;

    /// Takes at most `limit` due rows of these handlers, the oldest first: sets token and lease, and counts their start. Rows
    /// that another transaction has locked are skipped. A row that is larger than the limit is taken alone.
    fn take(
        &self,
        handlers: &[HandlerId],
        kind: RowKind,
        limit: TakeLimit,
        token: Uuid,
        lease: Duration,
    ) -> impl Future<Output = Result<Vec<Row>, StoreError>> + Send;

    /// Restarts the leases of those of these rows that still have this token. It never waits: a running row is locked,
    /// and needs no extension.
    fn extend(&self, token: Uuid, ids: &[i64], lease: Duration) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns the rows that have this token, in their call phase or not: those taken by a take whose response was lost.
    fn rows_by_token(&self, token: Uuid) -> impl Future<Output = Result<Vec<Row>, StoreError>> + Send;

    /// Records the result of a taken row, and clears its token. `false` if the row no longer has this token.
    fn record_result(&self, row: &Row, result: &RowResult) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Returns whether this message has a scheduled inbox row, even if it is taken or running: a key has one at most, whatever
    /// its fingerprint. It never waits for a lock.
    fn is_scheduled(&self, identity: &Identity) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Refunds the start of a row that has not run, whoever holds it now: its lease was lost, or it waits in its process.
    /// Never below 0, and the token stays. Repeating it refunds another start.
    fn refund_start(&self, row: &Row) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Turns rows that have 4 starts without a result, and whose last lease has been over for three leases, into dead
    /// letters with reason `crashed`: at most [`CRASHED_AT_ONCE`](super::CRASHED_AT_ONCE) of them. Returns the rows.
    fn dead_letter_crashed(
        &self,
        handlers: &[HandlerId],
        lease: Duration,
    ) -> impl Future<Output = Result<Vec<Row>, StoreError>> + Send;
}
