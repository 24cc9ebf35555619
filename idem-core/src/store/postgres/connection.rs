//! A connection in use.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection as _, Either, Execute, Executor, Postgres as Pg};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::answer::Failure;
use super::begin::{self, Isolation, Kind};
use super::handle::Statement;
use super::limits::{OWN, Use};
use super::pool::{Pool, Ready};
use super::session::COMPILED;

/// A connection in use. Dropping it closes the socket, which makes the server roll back: cancelled futures, panics and
/// timeouts need no other handling. A connection whose state is certain is put back.
pub(super) struct Connection {
    pub(super) ready: Ready,
    of: Use,
    /// Whether every statement so far was answered.
    pub(super) sound: bool,
    /// One of idem's own statements failed, for a reason that may lie in the session.
    spoilt: bool,
    pool: Arc<Pool>,
    /// That of one beyond the number of connections is missing, and it is closed after its use.
    // Declared after the connection, so that the socket is closed before the next connection may be opened.
    slot: Option<OwnedSemaphorePermit>,
}

/// Why a connection is closed whose answers cannot be told from those to a handler.
pub(super) const UNREAD: &str = "the handler left an answer unread";

/// The answer to a string of statements.
pub(super) struct Answer {
    /// The number of statements that finished.
    pub(super) finished: usize,
    pub(super) rows: Vec<PgRow>,
    pub(super) failure: Option<Failure>,
}

impl Connection {
    pub(super) fn new(ready: Ready, of: Use, pool: Arc<Pool>, slot: Option<OwnedSemaphorePermit>) -> Self {
        Self { ready, of, sound: true, spoilt: false, pool, slot }
    }

    /// Sends one query, or several in one string, and waits for the answer for at most `limit`.
    pub(super) async fn ask<'q>(
        &mut self,
        limit: Duration,
        query: impl Execute<'q, Pg> + 'q,
    ) -> Result<Vec<PgRow>, Failure> {
        let answer = self.send(limit, query).await;
        answer.failure.map_or(Ok(answer.rows), Err)
    }

    /// Sends one of idem's own statements as text, or several in one string.
    pub(super) async fn text(&mut self, text: impl Into<String>) -> Result<Vec<PgRow>, Failure> {
        self.ask(OWN, sqlx::raw_sql(AssertSqlSafe(text.into()))).await
    }

    /// As [`text`](Self::text), and returns how many statements of the string finished before one failed. It has one more second for
    /// each 4 MiB.
    pub(super) async fn run(&mut self, text: String) -> Answer {
        let limit = OWN + Duration::from_secs(text.len() as u64 / (4 * 1024 * 1024));
        self.send(limit, sqlx::raw_sql(AssertSqlSafe(text))).await
    }

    async fn send<'q>(&mut self, limit: Duration, query: impl Execute<'q, Pg> + 'q) -> Answer {
        // Until the answer has arrived, the connection must not be reused, even if this future is dropped.
        self.sound = false;
        let (mut finished, mut rows) = (0, Vec::new());
        let answer = async {
            let mut answers = self.ready.conn.fetch_many(query);
            while let Some(answer) = answers.try_next().await? {
                match answer {
                    Either::Left(_) => finished += 1,
                    Either::Right(row) => rows.push(row),
                }
            }
            Ok::<_, sqlx::Error>(())
        };
        let failure = match timeout(limit, answer).await {
            // Not the answer to this query, which would finish at least one statement. sqlx does not count what a handler left
            // unread: the end of a COPY that was not awaited, or of a `copy_out_raw` that failed.
            Ok(Ok(())) if finished == 0 => {
                return Answer { finished, rows, failure: Some(Failure::Lost(UNREAD.into())) };
            }
            Ok(answer) => answer.err().map(Failure::from),
            Err(late) => Some(Failure::Lost(late.into())),
        };
        match &failure {
            Some(Failure::Lost(_)) => self.pool.empty(),
            Some(refused) => {
                self.sound = true;
                self.spoilt |= !refused.is_ordinary();
                // A handler has removed prepared statements of idem; the other sessions have them.
                if refused.is_outdated() && refused.code() != Some("26000") {
                    self.pool.empty();
                }
            }
            None => self.sound = true,
        }
        Answer { finished, rows, failure }
    }

    /// Runs one statement with bound values. In a pooler's session it is unnamed.
    pub(super) async fn bound(&mut self, limit: Duration, query: Statement<'_>) -> Result<Vec<PgRow>, Failure> {
        let own = !self.is_pooled();
        self.ask(limit, query.persistent(own)).await
    }

    /// Returns BEGIN, with the limits for a handler with this timeout. idem's own transactions are read committed.
    pub(super) fn begin(&self, handler_timeout: Duration) -> String {
        let isolation = match self.of {
            Use::Lent => self.kind().isolation,
            Use::Own => Isolation::ReadCommitted,
        };
        begin::text(isolation, &self.ready.session, self.kind(), handler_timeout)
    }

    /// Runs one statement in autocommit, on a connection for idem's own statements.
    pub(super) async fn autocommit(&mut self, query: Statement<'_>) -> Result<Vec<PgRow>, Failure> {
        if !self.is_pooled() {
            return self.bound(OWN, query).await;
        }
        // Parse and Execute are separate messages, and a pooler sends both to the same session only in a transaction.
        self.alone(OWN, self.begin(OWN), query).await
    }

    /// Runs one statement that changes nothing, on a connection for idem's own statements, for at most `limit`: longer than
    /// the session permits a statement. A standby runs it, too.
    pub(super) async fn read_only(&mut self, limit: Duration, query: Statement<'_>) -> Result<Vec<PgRow>, Failure> {
        let begin = begin::read_only(&self.ready.session, self.kind(), limit);
        self.alone(limit, begin, query).await
    }

    /// Runs one statement in a transaction that begins like this.
    async fn alone(&mut self, limit: Duration, begin: String, query: Statement<'_>) -> Result<Vec<PgRow>, Failure> {
        let answer = async {
            self.text(format!("{begin} SET LOCAL {COMPILED} = off")).await?;
            let rows = self.bound(limit, query).await?;
            self.text("COMMIT").await?;
            Ok(rows)
        };
        let answer = answer.await;
        if answer.is_err() && self.sound {
            self.text("ROLLBACK").await?;
        }
        answer
    }

    /// Sends what sqlx has queued: a handler that drops a nested transaction leaves its ROLLBACK TO unsent, and an
    /// error of that would look like an answer to the next statement.
    pub(super) async fn flush(&mut self) -> Result<(), Failure> {
        self.sound = false;
        let error = match timeout(OWN, self.ready.conn.flush()).await {
            Ok(answer) => answer.err().map(Failure::from),
            Err(late) => Some(Failure::Lost(late.into())),
        };
        if let Some(lost @ Failure::Lost(_)) = error {
            self.pool.empty();
            return Err(lost);
        }
        self.sound = true;
        Ok(())
    }

    /// Makes the connection idle, unless its state is in doubt.
    pub(super) fn put_back(mut self) {
        self.ready.used = true;
        if self.sound
            && !self.spoilt
            && self.counts_transaction()
            && let Some(slot) = self.slot
        {
            self.pool.put_back(self.of, self.ready, slot);
        }
    }

    /// Called if its session is outdated: it is closed after its use. Returns whether it was in use before: then the idle ones, which
    /// may be as old, are closed too.
    pub(super) fn is_outdated(&mut self) -> bool {
        self.spoilt = true;
        if self.ready.used {
            self.pool.empty();
        }
        self.ready.used
    }

    /// Returns whether sqlx still counts the transaction that was forgotten in [`pool`](super::pool). A nested one that fails
    /// to begin, or whose `begin()` is dropped, makes it count down, and queue a ROLLBACK of everything.
    pub(super) fn counts_transaction(&self) -> bool {
        self.ready.conn.is_in_transaction()
    }

    /// Returns the kind of connections of its store.
    pub(super) fn kind(&self) -> Kind {
        self.pool.kind
    }

    /// Returns whether each transaction may run in a different session.
    pub(super) fn is_pooled(&self) -> bool {
        self.kind().pooled
    }

    /// Returns whether the settings of a handler are undone before the next one of its batch.
    pub(super) fn resets(&self) -> bool {
        self.pool.resets.load(Relaxed)
    }

    /// Undoes the settings of a handler before the next one of its batch, in each connection of the store.
    pub(super) fn reset_between_messages(&self) {
        self.pool.resets.store(true, Relaxed);
    }
}
