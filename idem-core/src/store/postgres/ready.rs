//! Connections whose sessions are prepared: what is idle, and how a new one is made.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::answer::Failure;
use super::limits::{CONNECT, Use};
use super::room::{Room, Slot};
use super::session::{self, Learnt, Session};

/// A connection whose session is prepared.
pub(super) struct Ready {
    pub(super) conn: PgConnection,
    pub(super) session: Session,
    /// Whether the claim is prepared in it.
    pub(super) claims: bool,
}

/// What the connections of a store share.
pub(super) struct Shared {
    pub(super) target: PgConnectOptions,
    pub(super) durable: bool,
    /// Each transaction may have another session of the server: a pooler is between.
    pub(super) pooled: bool,
    /// Whether what a handler sets is undone before the next one of its batch.
    pub(super) resets: bool,
    pub(super) room: Room<Ready>,
    /// Room for the connections of idem's own, so that they do not take the place of the handlers'.
    pub(super) own: std::sync::Arc<Semaphore>,
    pub(super) logins: Semaphore,
    /// Whether handlers prepare statements by SQL.
    pub(super) prepared: AtomicBool,
    pub(super) learnt: Mutex<Option<Learnt>>,
}

impl Shared {
    /// A new connection, or one that has become idle while others were made.
    pub(super) async fn log_in(
        &self,
        of: Use,
        logins: Option<&Semaphore>,
        slot: &Slot<Ready>,
    ) -> Result<Ready, Failure> {
        let Some(logins) = logins else { return self.connect(of).await };
        let turn = timeout(CONNECT, logins.acquire()).await.map_err(|late| Failure::Lost(late.into()))?;
        let _turn = turn.map_err(|closed| Failure::Lost(closed.into()))?;
        match slot.idle(of) {
            Some(ready) => Ok(ready),
            None => self.connect(of).await,
        }
    }

    async fn connect(&self, of: Use) -> Result<Ready, Failure> {
        let ready = timeout(CONNECT, self.new_session(of)).await;
        let ready = ready.unwrap_or_else(|late| Err(Failure::Lost(late.into())));
        if ready.is_err() {
            self.room.empty();
        }
        ready
    }

    async fn new_session(&self, of: Use) -> Result<Ready, Failure> {
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
