//! The inbox rows: inserting, taking, starting them and recording results.

use std::time::Duration;

use uuid::Uuid;

use super::{
    DueRows, HandlerId, Identity, LookBack, NewRow, Row, RowKind, RowResult, StoreError, TakeLimit, Transactions,
};

/// The inbox rows of a store. A method with a transaction as its argument is part of it; all others commit by
/// themselves.
pub trait InboxRows: Transactions {
    /// Inserts an inbox row. If one with this handler, key and fingerprint exists, counts a delivery of it instead.
    /// Returns the id of the row.
    fn insert(&self, txn: &mut Self::Txn, row: &NewRow<'_>) -> impl Future<Output = Result<i64, StoreError>> + Send;

    /// Does [`insert`](Self::insert) for several rows, in one statement if the database supports it. No two have the
    /// same handler, key and fingerprint.
    fn insert_many(
        &self,
        txn: &mut Self::Txn,
        rows: &[NewRow<'_>],
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        async move {
            for row in rows {
                self.insert(txn, row).await?;
            }
            Ok(())
        }
    }

    /// Counts a delivery of a dead row, if there is one. A scheduled row is not changed.
    fn count_duplicate(
        &self,
        txn: &mut Self::Txn,
        identity: &Identity,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Does [`count_duplicate`](Self::count_duplicate) for several messages, in one statement if the database supports
    /// it. Each copy among them counts.
    fn count_duplicates(
        &self,
        txn: &mut Self::Txn,
        identities: &[&Identity],
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        async move {
            for identity in identities {
                self.count_duplicate(txn, identity).await?;
            }
            Ok(())
        }
    }

    /// Starts a taken row: deletes it and sets its claim's `processed_at`, in one statement. `false` if the row no
    /// longer has this token: the lease was lost.
    fn start(&self, txn: &mut Self::Txn, row: &Row) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Does [`start`](Self::start) for several rows, in one statement if the database supports it; the results are in
    /// the order given. As after [`claim_many`](super::Claims::claim_many), the store has to refuse every COMMIT of a handler.
    fn start_many(
        &self,
        txn: &mut Self::Txn,
        rows: &[&Row],
    ) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send {
        async move {
            let mut started = Vec::with_capacity(rows.len());
            for row in rows {
                started.push(self.start(txn, row).await?);
            }
            Ok(started)
        }
    }

    /// Deletes a taken row without touching claims. `false` if the row no longer has this token.
    fn remove(&self, txn: &mut Self::Txn, row: &Row) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Returns the pending work of these handlers. It is cheap with any number of rows, because every poll calls it.
    fn poll_due(
        &self,
        handlers: &[HandlerId],
        lease: Duration,
    ) -> impl Future<Output = Result<DueRows, StoreError>> + Send;

    /// Does [`poll_due`](Self::poll_due) for rows that became due since then, for a store that has to skip deleted
    /// entries before it finds existing ones.
    fn poll_due_since(
        &self,
        handlers: &[HandlerId],
        lease: Duration,
        _since: LookBack,
    ) -> impl Future<Output = Result<DueRows, StoreError>> + Send {
        self.poll_due(handlers, lease)
    }

    /// Takes at most `limit` due rows of these handlers, the oldest first: sets token and lease, and counts their start. Rows that another transaction has locked are skipped. A row that is larger than the limit is
    /// taken alone.
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

    /// Returns the rows that have this token: those taken by a take whose response was lost.
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
