//! The inbox rows: inserting, fetching, starting them and recording results.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::{
    Answer, ClaimState, DueRows, FetchFor, FetchLimit, FetchedRows, HandlerId, Identity, LeftCalls, LookBack, NewRow,
    Row, RowResult, Transactions,
};

/// The inbox rows of a store. A method with a transaction as its argument is part of it; all others commit by
/// themselves.
///
/// Some handlers make an external call first. Until such a row has an answer it is in its call phase, in which only a fetch of
/// [`RowKind::Calling`](super::RowKind::Calling) finds it: [`poll_due`](Self::poll_due) and
/// [`dead_letter_crashed`](Self::dead_letter_crashed) leave it alone. It has the key of its call from its beginning. With its
/// answer it is an ordinary row, whose run completes the message.
pub trait InboxRows: Transactions {
    /// Inserts inbox rows, in one statement if the database supports it. Where one with this handler, key and fingerprint
    /// exists, counts a delivery of it instead. Returns the ids of the rows, in the order given. No two have the same handler,
    /// key and fingerprint.
    fn insert(&self, txn: &mut Self::Txn, rows: &[NewRow<'_>]) -> impl Future<Output = Answer<Vec<i64>>> + Send;

    /// Deletes fetched rows. The results are in the order given: `false` if the row no longer has this token, because
    /// the lease was lost. [`Processed`](ClaimState::Processed): their handlers run, so it sets the `processed_at` of
    /// their claims, in one statement if the database supports it. If it is more than one row, the store then has to
    /// refuse every COMMIT of a handler, as after [`claim`](Transactions::claim). [`Waiting`](ClaimState::Waiting):
    /// other rows take their places, and the claims stay as they are.
    fn start(
        &self,
        txn: &mut Self::Txn,
        rows: &[&Row],
        state: ClaimState,
    ) -> impl Future<Output = Answer<Vec<bool>>> + Send;

    /// Returns the pending work of these handlers. An orphaned row that another transaction has locked runs, even if its lease
    /// has ended, and is no pending work. It is cheap with any number of rows, because every poll calls it. `since`: only rows
    /// that became due since then, for a store that has to skip deleted entries before it finds existing ones.
    fn poll_due(
        &self,
        handlers: &[HandlerId],
        lease: Duration,
        since: LookBack,
    ) -> impl Future<Output = Answer<DueRows>> + Send;

    /// Fetches at most `limit` due rows of these handlers, the oldest first: sets the token and the lease of their handler, and
    /// counts their start. Rows that another transaction has locked are skipped. A row that is larger than the limit is fetched
    /// alone. The rows say how long they had been due ([`waited`](Row::waited)), as far as the store knows.
    ///
    /// For calls it also sets the time and the name of the first call where the row has none, before the call is made. A row whose
    /// time it has set has [`is_first_call`](Row::is_first_call), also if it is read again by the token: a store keeps the token that
    /// has set it. It is cheap if no call is due, because nothing polls for calls.
    fn fetch(
        &self,
        handlers: &[FetchFor],
        limit: FetchLimit,
        token: Uuid,
    ) -> impl Future<Output = Answer<FetchedRows>> + Send;

    /// Dates the call of a row anew, since the provider knows of none under its key: the time of the first call is now, and the
    /// lease begins again. The key stays. The row then has [`is_first_call`](Row::is_first_call) for its token. Returns when the
    /// store had its connection, as [`FetchedRows::since`]; `None` if the row no longer has this token: nothing must be sent.
    fn date_call(&self, row: &Row, lease: Duration) -> impl Future<Output = Answer<Option<Instant>>> + Send;

    /// Makes rows of these handlers, which make no call, ordinary ones if no call of theirs has begun: another version of the
    /// service has stored them. At most [`RELEASED_AT_ONCE`](super::RELEASED_AT_ONCE) of them, and none that another transaction
    /// has locked. Also counts those whose call may have begun, which stay as they are.
    fn release_calls(&self, handlers: &[HandlerId]) -> impl Future<Output = Answer<LeftCalls>> + Send;

    /// Restarts the leases of those of these rows that still have this token. It never waits: a running row is locked,
    /// and needs no extension.
    fn extend(&self, token: Uuid, ids: &[i64], lease: Duration) -> impl Future<Output = Answer<()>> + Send;

    /// Returns the rows that have this token, in their call phase or not: those of a fetch whose response was lost.
    fn rows_by_token(&self, token: Uuid) -> impl Future<Output = Answer<Vec<Row>>> + Send;

    /// Records the result of a fetched row or of its call, and clears its token; [`RowResult`] says what else it
    /// changes. `false` if the row no longer has this token.
    fn record_result(&self, row: &Row, result: &RowResult) -> impl Future<Output = Answer<bool>> + Send;

    /// Returns whether this message has a scheduled inbox row, even if it is fetched or running: a key has one at most,
    /// whatever its fingerprint. It never waits for a lock.
    fn is_scheduled(&self, identity: &Identity) -> impl Future<Output = Answer<bool>> + Send;

    /// Turns rows that have 4 starts without a result, and whose last lease has been over for three leases, into dead
    /// letters with reason `crashed`: at most [`CRASHED_AT_ONCE`](super::CRASHED_AT_ONCE) of them. Returns the rows.
    fn dead_letter_crashed(
        &self,
        handlers: &[HandlerId],
        lease: Duration,
    ) -> impl Future<Output = Answer<Vec<Row>>> + Send;
}
