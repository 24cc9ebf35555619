//! Connections: a pool of our own, since sqlx's pool can neither keep its count of transactions right nor close hard.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Execute, Executor, PgConnection, Postgres as Pg, Row};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::answer::Failure;
use super::sql::Statement;

/// How long a connection may take to be made.
pub(super) const CONNECT: Duration = Duration::from_secs(5);
/// How long one of idem's own statements may take, COMMIT included. A server that is stopped or cut off answers
/// nothing, not even an error.
pub(super) const OWN: Duration = Duration::from_secs(10);
/// How long one of idem's own statements waits for a lock, in milliseconds.
pub(super) const LOCK_WAIT: u64 = 1000;

/// The connections of one store; clones share them.
#[derive(Clone)]
pub(super) struct Lanes(Arc<Shared>);

struct Shared {
    target: PgConnectOptions,
    durable: bool,
    /// Each transaction may have another session of the server: a pooler is between.
    pooled: bool,
    permits: Arc<Semaphore>,
    // The last one used is the first one used again, so that few stay warm and a burst's others are seldom touched.
    idle: Mutex<Vec<Ready>>,
}

/// A connection whose session is prepared.
struct Ready {
    conn: PgConnection,
    session: Session,
    /// Whether the claim is prepared in it.
    claims: bool,
}

/// What the session was like before idem touched it: role, database and server decide it.
#[derive(Clone)]
pub(super) struct Session {
    /// The server's version, as in 150018.
    pub(super) version: i32,
    /// In milliseconds, as a string; restored for the handler after the claim.
    pub(super) lock_timeout: String,
    /// In milliseconds; 0 is none.
    pub(super) statement_timeout: u64,
    /// The level of durability.
    pub(super) synchronous_commit: String,
    /// Whether the server can watch its connection while a statement runs. Not every operating system can do this
    /// (PostgreSQL manual, 20.3.2); the statement timeout still holds.
    watches: bool,
}

/// A process that is killed during a long statement would hold its claim until the statement ends.
const WATCH: &str = "client_connection_check_interval = '1s'";

/// A connection in use. Dropping it closes the socket, which makes the server roll back: cancelled futures, panics and
/// deadlines need no other care. What leaves no doubt about its state is put back.
pub(super) struct Lane {
    ready: Ready,
    sound: bool,
    lanes: Lanes,
    // Behind the connection, so that the socket is closed when the next one may connect.
    _permit: OwnedSemaphorePermit,
}

impl Lanes {
    /// At most `connections` at a time to this target.
    pub(super) fn new(target: PgConnectOptions, connections: usize, durable: bool, pooled: bool) -> Self {
        let permits = Arc::new(Semaphore::new(connections));
        Self(Arc::new(Shared { target, durable, pooled, permits, idle: Mutex::default() }))
    }

    /// An idle connection, or a new one; waits while all are in use.
    pub(super) async fn lane(&self) -> Result<Lane, Failure> {
        let permit = self.0.permits.clone().acquire_owned().await.map_err(|closed| Failure::Lost(closed.into()))?;
        let idle = self.idle().pop();
        let ready = match idle {
            Some(ready) => ready,
            // Boxed: it is large and seldom used, and every delivery's future would carry it.
            None => Box::pin(self.connect()).await?,
        };
        Ok(Lane { ready, sound: true, lanes: self.clone(), _permit: permit })
    }

    /// Closes what is idle: one connection has failed, so that the others are doubtful.
    fn empty(&self) {
        let doubtful = std::mem::take(&mut *self.idle());
        drop(doubtful);
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Ready>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self) -> Result<Ready, Failure> {
        let ready = timeout(CONNECT, Ready::connect(&self.0)).await;
        let ready = ready.unwrap_or_else(|late| Err(Failure::Lost(late.into())));
        if ready.is_err() {
            self.empty();
        }
        ready
    }
}

impl Ready {
    async fn connect(shared: &Shared) -> Result<Self, Failure> {
        let mut conn = shared.target.connect().await?;
        let mut session = Session::of(&mut conn).await?;
        if session.version >= 140_000 {
            // In a transaction, because a pooler's session is not ours to set.
            let watch = sqlx::raw_sql(AssertSqlSafe(format!("BEGIN; SET LOCAL {WATCH}; ROLLBACK")));
            session.watches = match watch.execute(&mut conn).await.map_err(Failure::from) {
                Ok(_) => true,
                Err(Failure::Refused(_)) => sqlx::raw_sql("ROLLBACK").execute(&mut conn).await.map(|_| false)?,
                Err(lost) => return Err(lost),
            };
        }
        if !shared.pooled {
            session.prepare(&mut conn, shared.durable).await?;
        }
        // sqlx counts how deep transactions are nested. From here on it counts one level for the connection's life,
        // while BEGIN, COMMIT and ROLLBACK are plain text: so `tx.begin()` in a handler is always a savepoint, and its
        // `commit()` never commits the claim.
        std::mem::forget(conn.begin_with("BEGIN").await?);
        sqlx::raw_sql("ROLLBACK").execute(&mut conn).await?;
        Ok(Self { conn, session, claims: false })
    }
}

impl Session {
    async fn of(conn: &mut PgConnection) -> Result<Self, Failure> {
        let asked = sqlx::raw_sql(
            "SELECT current_setting('server_version_num')::int,
                    (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'lock_timeout'),
                    (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'statement_timeout'),
                    current_setting('synchronous_commit')",
        );
        let row = conn.fetch_one(asked).await?;
        Ok(Self {
            version: row.try_get(0)?,
            lock_timeout: row.try_get(1)?,
            statement_timeout: row.try_get::<String, _>(2)?.parse().unwrap_or(0),
            synchronous_commit: row.try_get(3)?,
            watches: false,
        })
    }

    /// Makes the session idem's own.
    async fn prepare(&self, conn: &mut PgConnection, durable: bool) -> Result<(), Failure> {
        let mut settings = format!(
            "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; \
             SET tcp_user_timeout = '20s'; SET lock_timeout = {LOCK_WAIT}; SET statement_timeout = {};",
            OWN.as_millis()
        );
        if durable {
            settings += &format!(" SET synchronous_commit = {};", self.synchronous_commit());
        }
        if self.watches {
            settings += &format!(" SET {WATCH};");
        }
        sqlx::raw_sql(AssertSqlSafe(settings)).execute(&mut *conn).await?;
        sqlx::raw_sql(AssertSqlSafe(super::txn::guard())).execute(conn).await?;
        Ok(())
    }

    /// What a transaction in a pooler's session begins with, beside its limits. sqlx gives names to what a handler
    /// prepares, and one that an earlier transaction has left in the session would be in the way of the same name.
    pub(super) fn pooled(&self) -> String {
        if self.watches { format!(" DEALLOCATE ALL; SET LOCAL {WATCH};") } else { " DEALLOCATE ALL;".to_owned() }
    }

    /// What idem's transactions run with: the session's own level where that is stronger than idem needs.
    pub(super) fn synchronous_commit(&self) -> &'static str {
        if self.synchronous_commit == "remote_apply" { "remote_apply" } else { "on" }
    }
}

impl Lane {
    /// Sends one query, or several in one string, and waits for the answer at most so long.
    pub(super) async fn ask<'q>(
        &mut self,
        limit: Duration,
        query: impl Execute<'q, Pg> + 'q,
    ) -> Result<Vec<PgRow>, Failure> {
        // Until there is an answer, nobody may use the connection again, also if this future is dropped.
        self.sound = false;
        let answer = match timeout(limit, self.ready.conn.fetch_all(query)).await {
            Ok(answer) => answer.map_err(Failure::from),
            Err(late) => Err(Failure::Lost(late.into())),
        };
        match &answer {
            Err(Failure::Lost(_)) => self.lanes.empty(),
            _ => self.sound = true,
        }
        answer
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

    /// One statement that is committed by itself.
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
        if self.sound {
            self.lanes.idle().push(self.ready);
        }
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

    /// Whether idem's transactions insist on durability.
    pub(super) fn is_durable(&self) -> bool {
        self.lanes.0.durable
    }
}
