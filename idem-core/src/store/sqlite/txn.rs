//! Transactions: guard, commit, rollback.

use std::fmt;
use std::time::Duration;

use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection as _, Row as _};

use super::answer::{BUSY, CONSTRAINT, ERROR, LOCKED, code, unknown};
use super::file::{Answer, Connection};
use super::handle::Sqlite;
use super::outbox_sql::{NewRow, insert};
use super::session::{CHANGED, STATE};
use super::{claims, local};
use crate::store::{CommitResult, Identity, LocalMessage, RollbackResult, StoreError, UNBEGUN, Unscheduled};

/// An open transaction, begun with `BEGIN IMMEDIATE`; it is the single writer of the file until it ends. Dropping it
/// interrupts the running statement and closes the connection.
pub struct Txn {
    pub(super) connection: Connection,
    /// Set before a handler gets the connection.
    pub(super) guarded: Option<Guarded>,
    /// Whether a handler has used the connection.
    lent: bool,
    /// Whether several handlers share it.
    pub(super) shared: bool,
    /// The messages that COMMIT writes.
    staged: Vec<NewRow>,
    /// Those of them that are for other handlers.
    local: Vec<LocalMessage>,
}

/// The mark of a transaction whose end is watched.
#[derive(Debug)]
pub(super) struct Guarded {
    /// The message whose claim was inserted, or whose row was started; `None` for natural handlers.
    claim: Option<Identity>,
}

impl fmt::Debug for Txn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Txn").field("guarded", &self.guarded).finish_non_exhaustive()
    }
}

impl Txn {
    /// Wraps a connection in which a transaction has begun.
    pub(super) fn of(connection: Connection) -> Self {
        Self { connection, guarded: None, lent: false, shared: false, staged: Vec::new(), local: Vec::new() }
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

    /// Adds messages that the commit writes, and sets those for other handlers.
    pub(super) fn stage(&mut self, rows: impl IntoIterator<Item = NewRow>, local: Vec<LocalMessage>) {
        self.staged.extend(rows);
        self.local.extend(local);
    }

    /// Returns whether it has one message, which has staged nothing.
    fn is_single(&self) -> bool {
        !self.shared && self.staged.is_empty() && self.local.is_empty()
    }

    /// Returns whether the next message would find the connection as it was before this one.
    async fn is_clean(&mut self) -> bool {
        !self.lent || self.connection.is_unchanged().await
    }

    /// Marks the transaction as the one that inserted this claim, or that needs none. A savepoint cannot outlive its
    /// transaction, so releasing it fails in any other transaction: after ROLLBACK, after COMMIT, and after either of them
    /// followed by a new BEGIN (where reading the claim again would find it).
    pub(super) async fn guard(&mut self, claim: Option<&Identity>) -> Result<(), sqlx::Error> {
        self.connection.run(r#"SAVEPOINT "idem_guard""#).await?;
        self.mark_guarded(claim);
        Ok(())
    }

    /// Does the same if the savepoint is set already.
    pub(super) fn mark_guarded(&mut self, claim: Option<&Identity>) {
        self.connection.watch().guard();
        self.guarded = Some(Guarded { claim: claim.cloned() });
    }
}

pub(super) async fn commit(store: &Sqlite, mut txn: Txn) -> CommitResult {
    // The handler timeout ends before COMMIT starts.
    txn.connection.watch().limit(Duration::MAX);
    if txn.is_single()
        && let Some(guarded) = txn.guarded.take()
    {
        return commit_at_once(store, txn, guarded).await;
    }
    let clean = txn.is_clean().await;
    if let Some(guarded) = txn.guarded.take() {
        match txn.connection.run(r#"RELEASE "idem_guard""#).await {
            Ok(()) => txn.connection.watch().release(),
            Err(error) if code(&error) == Some(ERROR) => return ended(store, txn, guarded).await,
            Err(error) => return CommitResult::Unknown(unknown(store.file.path(), error)),
        }
    }
    if txn.shared && !clean {
        TELL.call_once(|| {
            tracing::warn!("{CHANGED}: such batches are split until each message is alone; undo it in the handler")
        });
        // Dropping the connection rolls back.
        return CommitResult::Refused(CHANGED.into());
    }
    // Behind the guard, so that nothing is inserted behind a transaction that its handler has ended.
    let unscheduled = match write(store, &mut txn).await {
        Ok(unscheduled) => unscheduled,
        // Dropping the connection rolls back.
        Err(error) => {
            return match store.file.fault_of_message(error) {
                StoreError::Message(error) => CommitResult::Refused(error),
                fault => CommitResult::NotSent(fault, None),
            };
        }
    };
    let Err(error) = txn.connection.run("COMMIT").await else {
        if clean {
            txn.connection.give_back();
        }
        unscheduled.tell();
        return CommitResult::Done;
    };
    not_committed(store, txn, error).await
}

/// Releases the guard and commits by one command, for a single message that has staged nothing.
async fn commit_at_once(store: &Sqlite, mut txn: Txn, guarded: Guarded) -> CommitResult {
    txn.connection.watch().end();
    let command = format!("RELEASE \"idem_guard\"; COMMIT; {STATE}");
    let Answer { finished, row, error } = txn.connection.run_all(3, sqlx::query(AssertSqlSafe(command))).await;
    match error {
        Some(error) if finished == 0 && code(&error) == Some(ERROR) => ended(store, txn, guarded).await,
        Some(error) if finished == 0 => CommitResult::Unknown(unknown(store.file.path(), error)),
        Some(error) if finished == 1 => {
            txn.connection.watch().release();
            not_committed(store, txn, error).await
        }
        // The state of the connection is unknown, and so it is closed.
        Some(_) => CommitResult::Done,
        None => {
            txn.connection.watch().release();
            let state = row.and_then(|row| row.try_get::<String, _>(0).ok());
            if state.is_some_and(|state| txn.connection.is_initial(&state)) {
                txn.connection.give_back();
            }
            CommitResult::Done
        }
    }
}

/// Rolls back after a COMMIT that failed, and returns its result.
async fn not_committed(store: &Sqlite, mut txn: Txn, error: sqlx::Error) -> CommitResult {
    let committed = match code(&error) {
        // The transaction remains open after these two (SQLite manual, "Transaction", 2.3).
        Some(CONSTRAINT) => CommitResult::Refused(error.into()),
        Some(BUSY | LOCKED) => CommitResult::Retry(error.into()),
        // After a failed write or fsync the frames may still be in the WAL, and become valid after a crash.
        _ => return CommitResult::Unknown(unknown(store.file.path(), error)),
    };
    if txn.connection.run("ROLLBACK").await.is_ok() && txn.is_clean().await {
        txn.connection.give_back();
    }
    committed
}

/// Writes the messages that the handlers have staged.
async fn write(store: &Sqlite, txn: &mut Txn) -> Result<Unscheduled, sqlx::Error> {
    let (local, staged) = (std::mem::take(&mut txn.local), std::mem::take(&mut txn.staged));
    let unscheduled = local::insert(store, txn.connection(), &local).await?;
    insert(store, txn.connection(), &staged).await?;
    Ok(unscheduled)
}

/// Warns only once that a batch was split.
static TELL: std::sync::Once = std::sync::Once::new();

/// The handler ended the transaction: by a statement, or silently by a failing `INSERT OR ROLLBACK`, a full disk or an
/// interrupt. The connection is closed, because its state is unknown.
async fn ended(store: &Sqlite, mut txn: Txn, guarded: Guarded) -> CommitResult {
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
    let Some(claim) = guarded.claim else { return CommitResult::CommittedEarly(Box::default()) };
    match claims::read(store, txn.connection(), &claim).await {
        Ok(Some(claim)) if claim.age.is_some() => CommitResult::CommittedEarly(Box::default()),
        Ok(_) => CommitResult::RolledBack,
        Err(error) => CommitResult::Unknown(unknown(store.file.path(), error)),
    }
}

pub(super) async fn rollback(store: &Sqlite, mut txn: Txn) -> Result<RollbackResult, StoreError> {
    txn.connection.watch().limit(Duration::MAX);
    let ours = match txn.guarded {
        Some(_) => txn.connection.run(r#"ROLLBACK TO "idem_guard""#).await,
        None => Ok(()),
    };
    let answer = match ours {
        Ok(()) => {
            txn.connection.watch().release();
            txn.connection.run("ROLLBACK").await
        }
        lost => lost,
    };
    match answer {
        Ok(()) => {
            // Temporary objects that were made in the transaction are gone.
            if txn.is_clean().await {
                txn.connection.give_back();
            }
            Ok(RollbackResult::RolledBack)
        }
        // There is no transaction, or not the one begun here: the handler has ended it.
        Err(error) if code(&error) == Some(ERROR) => match txn.guarded.take() {
            Some(guarded) => match ended(store, txn, guarded).await {
                CommitResult::CommittedEarly(_) => Ok(RollbackResult::CommittedEarly),
                CommitResult::CommitRefused => Ok(RollbackResult::CommitRefused),
                CommitResult::Refused(_) => Ok(RollbackResult::Unbegun),
                CommitResult::Unknown(fault) | CommitResult::NotSent(fault, _) => Err(fault),
                _ => Ok(RollbackResult::RolledBack),
            },
            None => Ok(RollbackResult::RolledBack),
        },
        Err(error) => Err(unknown(store.file.path(), error)),
    }
}
