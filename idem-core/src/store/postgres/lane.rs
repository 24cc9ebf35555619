//! A connection in use.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Connection, Either, Execute, Executor, PgConnection, Postgres as Pg};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::answer::Failure;
use super::begin::{self, Kind};
use super::limits::{OWN, Use};
use super::ready::{Ready, Shared};
use super::room::Slot;
use super::session::Session;
use super::statement::Statement;

/// A connection in use. Dropping it closes the socket, which makes the server roll back: cancelled futures, panics and
/// deadlines need no other care. What leaves no doubt about its state is put back.
pub(super) struct Lane {
    ready: Ready,
    of: Use,
    /// Whether every statement so far was answered.
    sound: bool,
    /// One of idem's own statements was refused, for a reason that may lie in the session.
    spoilt: bool,
    /// sqlx reads each answer one question too late, since a handler has left the end of an answer unread.
    behind: bool,
    shared: Arc<Shared>,
    // Behind the connection, so that the socket is closed when the next one may connect.
    slot: Slot<Ready>,
    _own: Option<OwnedSemaphorePermit>,
}

/// What came back for a string of statements.
pub(super) struct Answer {
    /// How many of them were finished.
    pub(super) finished: usize,
    pub(super) rows: Vec<PgRow>,
    pub(super) failure: Option<Failure>,
}

impl Lane {
    pub(super) fn new(
        ready: Ready,
        of: Use,
        shared: Arc<Shared>,
        slot: Slot<Ready>,
        own: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self { ready, of, sound: true, spoilt: false, behind: false, shared, slot, _own: own }
    }

    /// Sends one query, or several in one string, and waits for the answer at most so long.
    pub(super) async fn ask<'q>(
        &mut self,
        limit: Duration,
        query: impl Execute<'q, Pg> + 'q,
    ) -> Result<Vec<PgRow>, Failure> {
        let answer = self.run(limit, query).await;
        answer.failure.map_or(Ok(answer.rows), Err)
    }

    /// The same, and tells how many statements of the string were finished before one failed.
    pub(super) async fn run<'q>(&mut self, limit: Duration, query: impl Execute<'q, Pg> + 'q) -> Answer {
        let answer = self.read(limit, query).await;
        if answer.finished > 0 || answer.failure.is_some() {
            return answer;
        }
        // No answer of ours: each of them finishes a statement.
        self.read_on(limit).await
    }

    /// The next answer, behind one that was not ours but the end of something that a handler has left unread, and that sqlx
    /// does not count: a COPY whose end was not waited for, or a `copy_out_raw` that failed. It takes a question to read one.
    pub(super) async fn read_on(&mut self, limit: Duration) -> Answer {
        self.behind = true;
        self.read(limit, sqlx::raw_sql("")).await
    }

    async fn read<'q>(&mut self, limit: Duration, query: impl Execute<'q, Pg> + 'q) -> Answer {
        // Until there is an answer, nobody may use the connection again, also if this future is dropped.
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
            Ok(answer) => answer.err().map(Failure::from),
            Err(late) => Some(Failure::Lost(late.into())),
        };
        match &failure {
            Some(Failure::Lost(_)) => self.shared.room.empty(),
            Some(refused) => {
                self.sound = true;
                self.spoilt |= !refused.is_ordinary();
            }
            None => self.sound = true,
        }
        Answer { finished, rows, failure }
    }

    /// One statement with values. In a pooler's session it has no name.
    pub(super) async fn bound(
        &mut self,
        limit: Duration,
        query: Query<'_, Pg, PgArguments>,
    ) -> Result<Vec<PgRow>, Failure> {
        let own = !self.is_pooled();
        self.ask(limit, query.persistent(own)).await
    }

    /// One statement that is committed by itself, on a connection of idem's own.
    pub(super) async fn alone(&mut self, query: Query<'_, Pg, PgArguments>) -> Result<Vec<PgRow>, Failure> {
        if !self.is_pooled() {
            return self.bound(OWN, query).await;
        }
        // It is parsed and then run, and only in a transaction a pooler lets both meet the same session.
        let answer = async {
            let begin = begin::text(self.session(), self.kind(), OWN);
            self.ask(OWN, sqlx::raw_sql(AssertSqlSafe(begin))).await?;
            let rows = self.bound(OWN, query).await?;
            self.ask(OWN, sqlx::raw_sql("COMMIT")).await?;
            Ok(rows)
        };
        let answer = answer.await;
        if answer.is_err() && self.sound {
            self.ask(OWN, sqlx::raw_sql("ROLLBACK")).await?;
        }
        answer
    }

    /// Sends what sqlx has queued: a handler that drops a nested transaction leaves its ROLLBACK TO unsent, and an
    /// error of that would look like an answer to the next statement.
    pub(super) async fn flush(&mut self) -> Result<(), Failure> {
        self.sound = false;
        let answer = match timeout(OWN, self.ready.conn.flush()).await {
            Ok(answer) => answer.map_err(Failure::from),
            Err(late) => Err(Failure::Lost(late.into())),
        };
        match answer {
            Err(Failure::Lost(error)) => {
                self.shared.room.empty();
                Err(Failure::Lost(error))
            }
            _ => {
                self.sound = true;
                Ok(())
            }
        }
    }

    /// Prepares the claim, once in the life of a connection.
    pub(super) async fn prepare_claim(&mut self, statement: &Statement) -> Result<(), Failure> {
        if !self.ready.claims {
            self.ask(OWN, sqlx::raw_sql(statement.text())).await?;
            self.ready.claims = true;
        }
        Ok(())
    }

    /// Makes it idle, unless its state is in doubt.
    pub(super) fn put_back(self) {
        if self.sound && !self.spoilt && !self.behind {
            self.slot.put_back(self.of, self.ready);
        }
    }

    /// Takes back that a refusal has spoilt it: it was asked for one.
    pub(super) fn forgive(&mut self) {
        self.spoilt = false;
    }

    /// Whether every statement so far was answered.
    pub(super) fn is_sound(&self) -> bool {
        self.sound
    }

    /// What the session was like.
    pub(super) fn session(&self) -> &Session {
        &self.ready.session
    }

    /// The connection itself, for a handler.
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.ready.conn
    }

    /// What kind of connections its store has.
    pub(super) fn kind(&self) -> Kind {
        Kind { pooled: self.shared.pooled, durable: self.shared.durable }
    }

    /// Whether each transaction may have another session.
    pub(super) fn is_pooled(&self) -> bool {
        self.shared.pooled
    }

    /// Whether what a handler sets is undone before the next one of its batch.
    pub(super) fn resets(&self) -> bool {
        self.shared.resets
    }

    /// Whether statements that handlers prepare by SQL are to be found behind each of them.
    pub(super) fn finds_prepared(&self) -> bool {
        self.shared.prepared.load(Relaxed)
    }

    /// A handler has prepared a statement by SQL: others may have, in sessions that are idle.
    pub(super) fn find_prepared(&self) {
        if !self.shared.prepared.swap(true, Relaxed) {
            self.shared.room.empty();
        }
    }

    /// Whether idem's transactions insist on durability.
    pub(super) fn is_durable(&self) -> bool {
        self.shared.durable
    }
}
