//! Transactions: begin, guard and commit, roll back.

use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgConnection, Postgres as Pg, Row};

use crate::Key;
use crate::store::{HandlerId, StoreError, Ticket, TxnState};

use super::answer::{About, Failure};
use super::begin;
use super::clean::{CLEAN, RESET};
use super::connection::Connection;
use super::guard::check;
use super::limits::OWN;
use super::pool::Pool;
use super::writes::Writes;

/// An open transaction, with exclusive use of its connection. Dropping it closes the connection.
pub struct Txn {
    pub(super) connection: Connection,
    // The transaction id, once it has made a claim, started a row or been guarded without either.
    pub(super) xid: Option<String>,
    // One of those claims.
    claim: Option<(HandlerId, Key)>,
    // Whether the database refuses a COMMIT by anyone but idem.
    pub(super) batch: bool,
    // How long one of idem's own statements waits for a lock, in milliseconds.
    lock_wait: u64,
    // The handler timeout.
    handler_timeout: Duration,
    // Whether no statement has run in it yet.
    fresh: bool,
    // Whether a handler has used the connection.
    lent: bool,
    // Whether several handlers share it.
    pub(super) shared: bool,
    // Whether a handler has failed because the session, or what sqlx knows of it, is outdated.
    pub(super) outdated: bool,
    // The messages that COMMIT writes.
    pub(super) writes: Writes,
}

impl std::fmt::Debug for Txn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Txn").field("xid", &self.xid).finish_non_exhaustive()
    }
}

/// Begins, with the limits for a handler with this timeout.
pub(super) async fn begin(pool: &Pool, handler_timeout: Duration) -> Result<Txn, StoreError> {
    let mut connection = pool.lent().await?;
    let text = begin::lent(connection.session(), connection.kind(), handler_timeout);
    // On any failure the connection is dropped: a transaction may be open in it.
    connection.ask(OWN, sqlx::raw_sql(AssertSqlSafe(text))).await?;
    Ok(Txn::of(connection, handler_timeout))
}

/// Prepares the transaction for the next of several handlers. If nothing can be written outside of idem's transactions,
/// the guard alone checks whether it is still open.
///
/// Behind a pooler nobody knows that. A ROLLBACK of the handler gives its session back, and the pooler lends another one to
/// the next statement, which may be one that another client has made writable.
pub(super) async fn check_between(txn: &mut Txn) -> Result<TxnState, StoreError> {
    txn.shared = true;
    if !txn.connection.counts_transaction() {
        return Ok(TxnState::Ended);
    }
    let resets = txn.connection.resets();
    if !txn.connection.is_pooled() && txn.connection.session().read_only && !resets {
        return Ok(TxnState::Unknown);
    }
    let Some(xid) = &txn.xid else { return Ok(TxnState::Unknown) };
    let mut text = check(&format!("'{xid}'::pg_catalog.xid8"), None, None);
    if resets {
        // RESET ALL removes the limits of this transaction as well.
        text += &format!(
            "; {RESET};{} {}",
            if txn.connection.is_pooled() { txn.connection.session().lasting() } else { "" },
            begin::limits(
                txn.connection.session(),
                txn.connection.kind(),
                txn.handler_timeout,
                &txn.connection.session().lock_timeout
            )
        );
    }
    if !txn.connection.is_usable() {
        return Err(not_answered());
    }
    txn.connection.flush().await?;
    match txn.connection.ask(OWN, sqlx::raw_sql(AssertSqlSafe(text))).await {
        Ok(_) => Ok(TxnState::Open),
        Err(Failure::Refused(_)) => Ok(TxnState::Ended),
        Err(lost) => Err(lost.into()),
    }
}

pub(super) fn not_answered() -> StoreError {
    StoreError::ConnectionLost("a statement of this transaction was not answered".into())
}

impl Txn {
    /// Wraps a connection in which a transaction has begun.
    pub(super) fn of(connection: Connection, handler_timeout: Duration) -> Self {
        let lock_wait = begin::lock_wait(connection.session(), handler_timeout);
        Self {
            connection,
            xid: None,
            claim: None,
            batch: false,
            lock_wait,
            handler_timeout,
            fresh: true,
            lent: false,
            shared: false,
            outdated: false,
            writes: Writes::default(),
        }
    }

    /// Runs one of idem's own statements, for the messages of this transaction.
    pub(super) async fn ask(&mut self, query: Query<'_, Pg, PgArguments>) -> Result<Vec<PgRow>, StoreError> {
        self.ask_about(About::Messages, query).await
    }

    /// Runs a statement that writes payloads.
    pub(super) async fn ask_payloads(&mut self, query: Query<'_, Pg, PgArguments>) -> Result<Vec<PgRow>, StoreError> {
        self.ask_about(About::Payloads, query).await
    }

    async fn ask_about(&mut self, about: About, query: Query<'_, Pg, PgArguments>) -> Result<Vec<PgRow>, StoreError> {
        self.fresh = false;
        self.connection.bound(OWN, query).await.map_err(|failure| failure.fault(about))
    }

    /// Runs a statement that fails if another transaction has inserted the same key meanwhile. Returns `None` in that
    /// case, in a new transaction.
    pub(super) async fn ask_alone(
        &mut self,
        query: Query<'_, Pg, PgArguments>,
    ) -> Result<Option<Vec<PgRow>>, StoreError> {
        self.fresh = false;
        match self.connection.bound(OWN, query).await {
            Ok(rows) => Ok(Some(rows)),
            Err(failure) if failure.code() == Some("23505") => {
                self.begin_again().await?;
                Ok(None)
            }
            Err(failure) => Err(failure.fault(About::Messages)),
        }
    }

    /// Rolls back, and begins with the same limits.
    pub(super) async fn begin_again(&mut self) -> Result<(), StoreError> {
        let begin = begin::lent(self.connection.session(), self.connection.kind(), self.handler_timeout);
        let again = format!("ROLLBACK; {begin}");
        self.connection.ask(OWN, sqlx::raw_sql(AssertSqlSafe(again))).await?;
        Ok(())
    }

    /// Runs several of idem's own statements in one string, for the messages of this transaction.
    pub(super) async fn ask_text(&mut self, text: String) -> Result<Vec<PgRow>, StoreError> {
        self.fresh = false;
        let asked = self.connection.ask(OWN, sqlx::raw_sql(AssertSqlSafe(text))).await;
        asked.map_err(|failure| failure.fault(About::Messages))
    }

    /// Returns whether no statement has run in it yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Returns the session's own lock timeout, which is restored for the handler.
    pub(super) fn lock_timeout(&self) -> String {
        self.connection.session().lock_timeout.clone()
    }

    /// Returns how long one of idem's own statements waits for a lock, in milliseconds.
    pub(super) fn lock_wait(&self) -> u64 {
        self.lock_wait
    }

    /// Records the transaction id, which the guard compares, and one of the claims that the transaction made or dated, if
    /// it did.
    pub(super) fn guard(&mut self, xid: String, claim: Option<(HandlerId, Key)>) {
        self.xid = Some(xid);
        self.claim = claim;
    }

    /// Records that one of the claims carries the transaction id, so that COMMIT needs permission.
    pub(super) fn guard_batch(&mut self) {
        self.batch = true;
    }

    /// Returns the data by which other connections can identify the transaction.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        let session = (!self.connection.is_pooled()).then(|| self.connection.session().process);
        Some(Ticket { number: self.xid.clone()?, claim: self.claim.clone(), session })
    }

    /// The connection, for a handler.
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        self.fresh = false;
        self.lent = true;
        self.connection.raw()
    }

    /// Returns the statements that follow the end of the transaction in the same string, so that session state of a
    /// handler does not reach the next message. A pooler's session stays as it is: it may belong to another client by then.
    pub(super) fn cleaning(&self) -> &'static str {
        if self.is_cleaned() { CLEAN } else { "" }
    }

    fn is_cleaned(&self) -> bool {
        self.lent && !self.connection.is_pooled()
    }

    /// Makes the connection idle, after the answer to its [`cleaning`](Self::cleaning). An outdated session is closed, and
    /// so is one that is not clean.
    pub(super) fn put_back(self, answer: &[PgRow]) {
        let clean = !self.is_cleaned() || answer.last().and_then(|row| row.try_get(0).ok()) == Some(true);
        if clean && !self.outdated {
            self.connection.put_back();
        }
    }
}
