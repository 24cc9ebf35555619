//! An open transaction.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use crate::Key;
use crate::store::{Answer, HandlerId, Identity, StoreError, TxnHandle};

use super::answer::About;
use super::begin;
use super::connection::Connection;
use super::handle::Statement;
use super::limits::OWN;
use super::state::CLEAN;
use super::writes::Writes;

/// An open transaction, with exclusive use of its connection. Dropping it closes the connection.
pub struct Txn {
    pub(super) connection: Connection,
    // The transaction id, once it has made a claim, started a row or been guarded without either.
    pub(super) xid: Option<String>,
    // One of those claims.
    claim: Option<(HandlerId, Key)>,
    // Whether one of the claims carries the transaction id, so that the database refuses a COMMIT by anyone but idem.
    pub(super) batch: bool,
    // How long one of idem's own statements waits for a lock, in milliseconds.
    pub(super) lock_wait: u64,
    // The handler timeout.
    pub(super) handler_timeout: Duration,
    // Whether no statement has run in it yet.
    pub(super) fresh: bool,
    // Whether a handler has used the connection.
    lent: bool,
    // Whether several handlers share it.
    pub(super) shared: bool,
    // The messages that COMMIT writes.
    pub(super) writes: Writes,
}

impl std::fmt::Debug for Txn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Txn").field("xid", &self.xid).finish_non_exhaustive()
    }
}

pub(super) fn not_answered() -> StoreError {
    StoreError::ConnectionLost("a statement of this transaction was not answered".into())
}

impl Txn {
    /// Wraps a connection in which a transaction has begun.
    pub(super) fn of(connection: Connection, handler_timeout: Duration) -> Self {
        let lock_wait = begin::lock_wait(&connection.ready.session, handler_timeout);
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
            writes: Writes::default(),
        }
    }

    /// Runs one of idem's own statements, for the messages of this transaction.
    pub(super) async fn ask(&mut self, query: Statement<'_>) -> Answer<Vec<PgRow>> {
        self.ask_about(About::Messages, query).await
    }

    pub(super) async fn ask_about(&mut self, about: About, query: Statement<'_>) -> Answer<Vec<PgRow>> {
        self.fresh = false;
        self.connection.bound(OWN, query).await.map_err(|failure| failure.fault(about))
    }

    /// Runs a statement that fails if another transaction has inserted the same key meanwhile. Returns `None` in that
    /// case, in a new transaction.
    pub(super) async fn ask_alone(&mut self, query: Statement<'_>) -> Answer<Option<Vec<PgRow>>> {
        self.fresh = false;
        match self.connection.bound(OWN, query).await {
            Ok(rows) => Ok(Some(rows)),
            Err(failure) if failure.code() == Some("23505") => {
                let begin = self.connection.begin(self.handler_timeout);
                self.connection.text(format!("ROLLBACK; {begin}")).await?;
                Ok(None)
            }
            Err(failure) => Err(failure.fault(About::Messages)),
        }
    }

    /// Returns the session's own lock timeout, which is restored for the handler.
    pub(super) fn lock_timeout(&self) -> String {
        self.connection.ready.session.lock_timeout.clone()
    }

    /// Records the transaction id, which the guard compares, and one of the claims that the transaction made or dated, if
    /// it did.
    pub(super) fn guard(&mut self, xid: String, claim: Option<&Identity>) {
        self.xid = Some(xid);
        self.claim = claim.map(|identity| (identity.handler, identity.key.clone()));
    }

    /// Returns the data by which other connections can identify the transaction.
    pub(super) fn txn_handle(&self) -> Option<TxnHandle> {
        Some(TxnHandle { number: self.xid.clone()?, claim: self.claim.clone() })
    }

    /// The connection, for a handler.
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        self.fresh = false;
        self.lent = true;
        &mut self.connection.ready.conn
    }

    /// Returns the statements that follow the end of the transaction in the same string, so that session state of a
    /// handler does not reach the next message. A pooler's session stays as it is: it may belong to another client by then.
    pub(super) fn cleaning(&self) -> &'static str {
        if self.is_cleaned() { CLEAN } else { "" }
    }

    fn is_cleaned(&self) -> bool {
        self.lent && !self.connection.is_pooled()
    }

    /// Makes the connection idle, after the answer to its [`cleaning`](Self::cleaning). A session that is not clean is closed.
    pub(super) fn put_back(self, answer: &[PgRow]) {
        let clean = !self.is_cleaned() || answer.last().and_then(|row| row.try_get(0).ok()) == Some(true);
        if clean {
            self.connection.put_back();
        }
    }
}
