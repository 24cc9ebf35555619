//! Two pools of connections: those that are lent to handlers, and a few for idem's own statements.
//!
//! Neither sqlx's pool nor deadpool: one can neither keep its count of transactions right nor close a connection abruptly, and
//! the other makes a connection idle that is dropped, and lends none beyond its number, as a ping needs it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::store::FOR_A_RELAY;

use super::answer::Failure;
use super::begin::Kind;
use super::connection::Connection;
use super::limits::{CONNECT, Use};
use super::login::Login;
use super::session::{self, Session};

/// How many connections are opened at once. After an outage all tasks want one, in each process: a server that gets all
/// logins at the same time answers none in time, and all would be tried again.
const LOGINS: usize = 4;

/// How many of so many connections are for idem's own statements, which are short.
fn own(connections: usize) -> usize {
    if connections < FOR_A_RELAY { 1 } else { (connections / 8).clamp(2, 8) }
}

/// The connections of one store.
pub(super) struct Pool {
    login: Login,
    pub(super) kind: Kind,
    /// Prepares the statements of a transaction that a handler may use.
    prepare: String,
    /// Prepares those that write what it stages.
    writes: String,
    /// The first session of idem's own, which tells what later ones start with.
    first: Mutex<Option<Session>>,
    /// Whether the settings of a handler are undone before the next one of its batch.
    pub(super) resets: AtomicBool,
    lent: Slots,
    own: Slots,
    /// Limits own statements that may take long: where there are two connections, another one can always run concurrently with
    /// them, which extends leases.
    long: Semaphore,
    logins: Semaphore,
}

/// A connection whose session is prepared.
pub(super) struct Ready {
    pub(super) conn: PgConnection,
    pub(super) session: Session,
    /// Whether it has been in use before.
    pub(super) used: bool,
}

/// The connections of one use.
struct Slots {
    free: Arc<Semaphore>,
    /// Each of them belongs to a free slot. A stack, so that few stay warm and those opened for a burst are seldom used.
    idle: Mutex<Vec<Ready>>,
}

impl Slots {
    fn new(size: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(size)), idle: Mutex::default() }
    }
}

impl Pool {
    /// Creates a pool of at most `connections`, at least 2. `prepared`: what prepares the statements of a transaction, and those
    /// that write what a handler stages.
    pub(super) fn new(login: Login, kind: Kind, prepared: [String; 2], connections: usize, resets: bool) -> Self {
        let (own, [prepare, writes]) = (own(connections), prepared);
        Self {
            login,
            kind,
            prepare,
            writes,
            first: Mutex::default(),
            resets: AtomicBool::new(resets),
            lent: Slots::new(connections.saturating_sub(own).max(1)),
            own: Slots::new(own),
            long: Semaphore::new(own.saturating_sub(1).max(1)),
            logins: Semaphore::new(LOGINS),
        }
    }

    /// Waits until an own statement that may take long can run, and keeps its place until the result is dropped.
    pub(super) async fn long(&self) -> Result<SemaphorePermit<'_>, Failure> {
        self.long.acquire().await.map_err(closed)
    }

    /// Returns a connection of this use, idle or new; waits while all are in use.
    pub(super) async fn connection(self: &Arc<Self>, of: Use) -> Result<Connection, Failure> {
        let slots = self.slots(of);
        let free = slots.free.clone().acquire_owned().await.map_err(closed)?;
        let idle = slots.idle.lock().pop();
        let ready = match idle {
            Some(ready) => ready,
            // Boxed: the future is large and seldom used, and would be part of every delivery's future.
            None => Box::pin(self.log_in(of)).await?,
        };
        Ok(Connection::new(ready, of, self.clone(), Some(free)))
    }

    /// Returns one for an own statement, without waiting for other logins and statements: those of a server that hangs would delay
    /// it. If all are in use, it is one more.
    pub(super) async fn own_at_once(self: &Arc<Self>) -> Result<Connection, Failure> {
        let free = self.own.free.clone().try_acquire_owned().ok();
        let idle = free.as_ref().and_then(|_| self.own.idle.lock().pop());
        let ready = match idle {
            Some(ready) => ready,
            None => self.open(Use::Own).await?,
        };
        Ok(Connection::new(ready, Use::Own, self.clone(), free))
    }

    fn slots(&self, of: Use) -> &Slots {
        match of {
            Use::Lent => &self.lent,
            Use::Own => &self.own,
        }
    }

    /// Returns a new connection, or one that became idle while others were opened.
    async fn log_in(&self, of: Use) -> Result<Ready, Failure> {
        let turn = timeout(CONNECT, self.logins.acquire()).await.map_err(|late| Failure::Lost(late.into()))?;
        let _turn = turn.map_err(closed)?;
        let idle = self.slots(of).idle.lock().pop();
        match idle {
            Some(ready) => Ok(ready),
            None => self.open(of).await,
        }
    }

    async fn open(&self, of: Use) -> Result<Ready, Failure> {
        // An error of the callback for credentials says nothing about the idle connections, so they are kept.
        let options = self.login.options().await?;
        let ready = timeout(CONNECT, self.prepared(of, options)).await;
        let ready = ready.unwrap_or_else(|late| Err(Failure::Lost(late.into())));
        if ready.is_err() {
            self.empty();
        }
        ready
    }

    /// Logs in with these options, and prepares the session. The settings that idem needs are made here, so that no callback can leave
    /// them out.
    async fn prepared(&self, of: Use, options: PgConnectOptions) -> Result<Ready, Failure> {
        let pooled = self.kind.pooled;
        let first = self.first.lock().clone();
        let options = match pooled {
            // A pooler accepts no settings: its sessions start with the role's settings. pgbouncer rejects this one as well (its
            // manual, `ignore_startup_parameters`), and a cached statement would be executed in a session that does not have it.
            true => options.extra_float_digits(None).statement_cache_capacity(0),
            false => session::started(options, of, first.as_ref()),
        };
        let mut conn = options.connect().await.map_err(|error| self.login.explained(error.into()))?;
        let mut session = Session::of(&mut conn, of == Use::Lent && !pooled).await?;
        session.learn(&mut conn, first).await?;
        if of == Use::Own {
            *self.first.lock() = Some(session.clone());
        }
        if !pooled {
            session.prepare(&mut conn, of, &self.prepare, &self.writes).await?;
        }
        // sqlx counts how deep transactions are nested. From here on it counts one level for the connection's life,
        // while BEGIN, COMMIT and ROLLBACK are plain text: `tx.begin()` in a handler is always a savepoint, and its
        // `commit()` never commits the claim.
        std::mem::forget(conn.begin_with("BEGIN").await?);
        sqlx::raw_sql("ROLLBACK").execute(&mut conn).await?;
        Ok(Ready { conn, session, used: false })
    }

    /// Makes a connection idle, and releases its slot.
    pub(super) fn put_back(&self, of: Use, ready: Ready, slot: OwnedSemaphorePermit) {
        self.slots(of).idle.lock().push(ready);
        drop(slot);
    }

    /// Closes all idle connections.
    pub(super) fn empty(&self) {
        for slots in [&self.lent, &self.own] {
            let closed = std::mem::take(&mut *slots.idle.lock());
            drop(closed);
        }
    }
}

/// The semaphores are never closed.
fn closed(error: AcquireError) -> Failure {
    Failure::Lost(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_connections_are_lent_and_one_of_idems_own_is_never_taken_by_a_long_statement() {
        for (connections, few) in [(2, 1), (3, 1), (4, 2), (16, 2), (25, 3), (32, 4), (64, 8), (1000, 8)] {
            assert_eq!(own(connections), few, "of {connections}");
        }
    }
}
