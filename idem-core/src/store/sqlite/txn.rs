//! An open transaction, and its end if it is not committed.

use std::fmt;
use std::time::Duration;

use sqlx::Connection as _;
use sqlx::sqlite::SqliteConnection;

use super::answer::{BUSY, CONSTRAINT, ERROR, LOCKED, code, unknown};
use super::file::{Connection, STATE};
use super::{Sqlite, claims, inbox_rows, outbox_rows, replies};
use crate::Reason;
use crate::outbox::StagedMessage;
use crate::store::{
    ClaimState, Claimed, CommitResult, Identity, LOCAL_CONFLICT, LocalMessage, NewRow, OutboxId, StoredReply, UNBEGUN,
};

/// An open transaction, begun with `BEGIN IMMEDIATE`; it is the single writer of the file until it ends. Dropping it
/// interrupts the running statement and closes the connection.
pub struct Txn {
    pub(super) connection: Connection,
    /// Whether its end is watched. Set before a handler gets the connection.
    pub(super) guarded: bool,
    /// The message whose claim was inserted, or whose row was started; `None` for natural handlers.
    claim: Option<Identity>,
    /// Whether a handler has used the connection.
    lent: bool,
    /// Whether several handlers share it.
    pub(super) shared: bool,
    /// The messages that COMMIT writes.
    pub(super) staged: Vec<(OutboxId, StagedMessage)>,
    /// Those of them that are for other handlers.
    pub(super) local: Vec<LocalMessage>,
    /// The reply to the request that it has claimed, which COMMIT writes too.
    pub(super) reply: Option<Box<(Identity, StoredReply)>>,
}

impl fmt::Debug for Txn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Txn").field("guarded", &self.guarded).finish_non_exhaustive()
    }
}

impl Txn {
    /// Wraps a connection in which a transaction has begun.
    pub(super) fn of(connection: Connection) -> Self {
        let (staged, local) = (Vec::new(), Vec::new());
        Self { connection, guarded: false, claim: None, lent: false, shared: false, staged, local, reply: None }
    }

    /// The connection, for one of idem's own statements.
    pub(super) fn connection(&mut self) -> &mut SqliteConnection {
        self.connection.raw()
    }

    /// The connection, for a handler.
    pub(super) fn lend(&mut self) -> &mut SqliteConnection {
        self.lent = true;
        self.connection.raw()
    }

    /// Returns whether COMMIT writes anything.
    pub(super) fn has_writes(&self) -> bool {
        !self.staged.is_empty() || !self.local.is_empty() || self.reply.is_some()
    }

    /// Returns whether the next message would find the connection as it was before this one.
    pub(super) async fn is_clean(&mut self) -> bool {
        if !self.lent {
            return true;
        }
        let state: Result<String, _> = sqlx::query_scalar(STATE).fetch_one(self.connection()).await;
        state.is_ok_and(|state| self.connection.is_initial(&state))
    }

    /// Marks the transaction as the one that inserted this claim, or that needs none. A savepoint cannot outlive its
    /// transaction, so releasing it fails in any other transaction: after ROLLBACK, after COMMIT, and after either of them
    /// followed by a new BEGIN (where reading the claim again would find it).
    pub(super) async fn guard(&mut self, claim: Option<&Identity>) -> sqlx::Result<()> {
        self.connection.run(r#"SAVEPOINT "idem_guard""#).await?;
        self.mark_guarded(claim);
        Ok(())
    }

    /// Does the same if the savepoint is set already.
    pub(super) fn mark_guarded(&mut self, claim: Option<&Identity>) {
        self.connection.watch().guard();
        (self.guarded, self.claim) = (true, claim.cloned());
    }
}

/// Rolls back after a COMMIT that failed, and returns its result.
pub(super) async fn not_committed(store: &Sqlite, mut txn: Txn, error: sqlx::Error) -> CommitResult {
    txn.connection.watch().release();
    let committed = match code(&error) {
        // The transaction remains open after these two (SQLite manual, "Transaction", 2.3).
        Some(CONSTRAINT) => CommitResult::Refused(error.into()),
        Some(BUSY | LOCKED) => CommitResult::Retry(error.into()),
        // After a failed write or fsync the frames may still be in the WAL, and become valid after a crash.
        _ => return CommitResult::Unknown(unknown(&store.file.path, error)),
    };
    if txn.connection.run("ROLLBACK").await.is_ok() && txn.is_clean().await {
        txn.connection.put_back();
    }
    committed
}

/// Writes the messages that the handlers have staged, and the reply to a request. Messages for other handlers are claimed, undated,
/// and stored if their claim is new. Returns how many become dead letters. The transaction is the only writer, so no claim is made
/// or removed meanwhile.
pub(super) async fn write(txn: &mut Txn) -> sqlx::Result<i64> {
    let mut conflicts = 0;
    for LocalMessage { identity, delivery, provider_key } in std::mem::take(&mut txn.local) {
        let row = match claims::insert(txn.connection(), &identity, ClaimState::Waiting).await? {
            Claimed::Found(Some(existing)) if identity.is_copy(existing.fingerprint) => continue,
            Claimed::Found(_) => {
                conflicts += 1;
                NewRow::new(&identity, &delivery, Err(Reason::Conflict)).with_attempts(0, LOCAL_CONFLICT)
            }
            Claimed::New { .. } => NewRow { provider_key, ..NewRow::new(&identity, &delivery, Ok(Duration::ZERO)) },
        };
        inbox_rows::insert(txn.connection(), &row).await?;
    }
    let staged = std::mem::take(&mut txn.staged);
    outbox_rows::insert(txn.connection(), &staged).await?;
    if let Some(reply) = txn.reply.take() {
        replies::insert(txn.connection(), &reply).await?;
    }
    Ok(conflicts)
}

/// Returns the result after the guard has failed with this error. If there is no savepoint, the handler ended the transaction: by a
/// statement, or silently by a failing `INSERT OR ROLLBACK`, a full disk or an interrupt. The connection is closed, because its
/// state is unknown.
pub(super) async fn ended(store: &Sqlite, mut txn: Txn, error: sqlx::Error) -> CommitResult {
    if code(&error) != Some(ERROR) {
        return CommitResult::Unknown(unknown(&store.file.path, error));
    }
    // Without these checks, a copy that another process claimed after the ROLLBACK would look like this transaction's
    // commit.
    if txn.connection.watch().rolled_back() {
        // sqlx has rolled back, since a nested transaction did not begin.
        if !txn.connection().is_in_transaction() {
            return CommitResult::Refused(UNBEGUN.into());
        }
        return CommitResult::RolledBack;
    }
    if txn.connection.watch().refused() {
        return CommitResult::CommitRefused;
    }
    // Fails if no other transaction was begun.
    let _ = txn.connection.run("ROLLBACK").await;
    txn.connection.watch().release();
    // Nothing tells how it has ended: the handler has replaced the hooks, or a COMMIT that it did not await has run where
    // idem's was allowed. A committed effect must not go unnoticed.
    let Some(claim) = txn.claim.take() else { return CommitResult::CommittedEarly(Box::default()) };
    match claims::read(txn.connection(), &claim).await {
        Ok(Some(claim)) if claim.age.is_some() => CommitResult::CommittedEarly(Box::default()),
        Ok(_) => CommitResult::RolledBack,
        Err(error) => CommitResult::Unknown(unknown(&store.file.path, error)),
    }
}
