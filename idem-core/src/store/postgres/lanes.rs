//! Connections: a pool of our own, since sqlx's pool can neither keep its count of transactions right nor close hard.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Either, Execute, Executor, PgConnection, Postgres as Pg};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::answer::Failure;
use super::room::{Room, Slot};
use super::session::{self, Learnt, Session};
use super::sql::Statement;

/// How long a connection may take to be made.
pub(super) const CONNECT: Duration = Duration::from_secs(5);
/// How long one of idem's own statements may take, COMMIT included. A server that is stopped or cut off answers
/// nothing, not even an error.
pub(super) const OWN: Duration = Duration::from_secs(10);
/// How long one of idem's own statements waits for a lock, in milliseconds.
pub(super) const LOCK_WAIT: u64 = 1000;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Transactions, in which a handler may have it. Outside of them its session is read-only.
    Lent,
    /// Statements of idem's own that are committed by themselves. No handler ever has it.
    Own,
}

impl Use {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Lent => Self::Own,
            Self::Own => Self::Lent,
        }
    }
}

/// The connections of one store; clones share them.
#[derive(Clone)]
pub(super) struct Lanes(Arc<Shared>);

struct Shared {
    target: PgConnectOptions,
    durable: bool,
    /// Each transaction may have another session of the server: a pooler is between.
    pooled: bool,
    /// Whether what a handler sets is undone before the next one of its batch.
    resets: bool,
    room: Room<Ready>,
    /// Room for the connections of idem's own, so that they do not take the place of the handlers'.
    own: Arc<Semaphore>,
    logins: Semaphore,
    /// Whether handlers prepare statements by SQL.
    prepared: AtomicBool,
    learnt: Mutex<Option<Learnt>>,
}

/// How many statements of idem's own run at once: they are short.
const OWN_AT_ONCE: usize = 8;

/// How many connections are made at once. Behind an outage all lanes want one, in each process: a server that is asked for all
/// of them at the same time answers none in time, and they would all ask again.
const LOGINS: usize = 4;

/// A connection whose session is prepared.
struct Ready {
    conn: PgConnection,
    session: Session,
    /// Whether the claim is prepared in it.
    claims: bool,
}

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
    lanes: Lanes,
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

impl Lanes {
    /// At most `connections` at a time to this target.
    pub(super) fn new(target: PgConnectOptions, connections: usize, durable: bool, pooled: bool, resets: bool) -> Self {
        let own = Arc::new(Semaphore::new((connections / 2).clamp(1, OWN_AT_ONCE)));
        let room = Room::new(connections);
        let logins = Semaphore::new(LOGINS);
        Self(Arc::new(Shared {
            target,
            durable,
            pooled,
            resets,
            room,
            own,
            logins,
            prepared: AtomicBool::new(false),
            learnt: Mutex::default(),
        }))
    }

    /// A connection for a transaction, idle or new; waits while all are in use.
    pub(super) async fn lent(&self) -> Result<Lane, Failure> {
        self.lane(Use::Lent, Some(&self.0.logins), None).await
    }

    /// A connection for statements of idem's own.
    pub(super) async fn own(&self) -> Result<Lane, Failure> {
        let own = self.0.own.clone().acquire_owned().await.map_err(|closed| Failure::Lost(closed.into()))?;
        self.lane(Use::Own, Some(&self.0.logins), Some(own)).await
    }

    /// The same, without waiting for other logins and statements of idem's own: those of a server that hangs would be waited
    /// for.
    pub(super) async fn own_at_once(&self) -> Result<Lane, Failure> {
        self.lane(Use::Own, None, None).await
    }

    async fn lane(
        &self,
        of: Use,
        logins: Option<&Semaphore>,
        own: Option<OwnedSemaphorePermit>,
    ) -> Result<Lane, Failure> {
        let (slot, idle) = self.0.room.enter(of).await.map_err(|closed| Failure::Lost(closed.into()))?;
        let ready = match idle {
            Some(ready) => ready,
            // Boxed: it is large and seldom used, and every delivery's future would carry it.
            None => Box::pin(self.log_in(of, logins, &slot)).await?,
        };
        Ok(Lane { ready, of, sound: true, spoilt: false, behind: false, lanes: self.clone(), slot, _own: own })
    }

    /// Closes what is idle: one connection has failed, so that the others are doubtful.
    fn empty(&self) {
        self.0.room.empty();
    }

    /// A new connection, or one that has become idle while others were made.
    async fn log_in(&self, of: Use, logins: Option<&Semaphore>, slot: &Slot<Ready>) -> Result<Ready, Failure> {
        let Some(logins) = logins else { return self.connect(of).await };
        let turn = timeout(CONNECT, logins.acquire()).await.map_err(|late| Failure::Lost(late.into()))?;
        let _turn = turn.map_err(|closed| Failure::Lost(closed.into()))?;
        match slot.idle(of) {
            Some(ready) => Ok(ready),
            None => self.connect(of).await,
        }
    }

    async fn connect(&self, of: Use) -> Result<Ready, Failure> {
        let ready = timeout(CONNECT, self.0.connect(of)).await;
        let ready = ready.unwrap_or_else(|late| Err(Failure::Lost(late.into())));
        if ready.is_err() {
            self.empty();
        }
        ready
    }
}

impl Shared {
    async fn connect(&self, of: Use) -> Result<Ready, Failure> {
        let learnt = *self.learnt();
        let mut conn = match self.pooled {
            // A pooler takes no settings: its sessions start as the role's do.
            true => self.target.connect().await?,
            false => session::started(self.target.clone(), of, self.durable, learnt).connect().await?,
        };
        let mut session = Session::of(&mut conn).await?;
        let learnt = session.learn(&mut conn, learnt).await?;
        if of == Use::Own {
            *self.learnt() = Some(learnt);
        }
        if !self.pooled {
            session.prepare(&mut conn, of, self.durable).await?;
        }
        // sqlx counts how deep transactions are nested. From here on it counts one level for the connection's life,
        // while BEGIN, COMMIT and ROLLBACK are plain text: so `tx.begin()` in a handler is always a savepoint, and its
        // `commit()` never commits the claim.
        std::mem::forget(conn.begin_with("BEGIN").await?);
        sqlx::raw_sql("ROLLBACK").execute(&mut conn).await?;
        Ok(Ready { conn, session, claims: false })
    }

    fn learnt(&self) -> MutexGuard<'_, Option<Learnt>> {
        self.learnt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lane {
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
            Some(Failure::Lost(_)) => self.lanes.empty(),
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
            let begin = super::txn::text(self, OWN);
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
                self.lanes.empty();
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

    /// Whether each transaction may have another session.
    pub(super) fn is_pooled(&self) -> bool {
        self.lanes.0.pooled
    }

    /// Whether what a handler sets is undone before the next one of its batch.
    pub(super) fn resets(&self) -> bool {
        self.lanes.0.resets
    }

    /// Whether statements that handlers prepare by SQL are to be found behind each of them.
    pub(super) fn finds_prepared(&self) -> bool {
        self.lanes.0.prepared.load(Relaxed)
    }

    /// A handler has prepared a statement by SQL: others may have, in sessions that are idle.
    pub(super) fn find_prepared(&self) {
        if !self.lanes.0.prepared.swap(true, Relaxed) {
            self.lanes.empty();
        }
    }

    /// Whether idem's transactions insist on durability.
    pub(super) fn is_durable(&self) -> bool {
        self.lanes.0.durable
    }
}
