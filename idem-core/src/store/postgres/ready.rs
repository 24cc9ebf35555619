//! Connections whose sessions are prepared, and how new ones are opened.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::answer::Failure;
use super::begin_sql::Isolation;
use super::limits::{CONNECT, Use};
use super::login::Login;
use super::room::{Room, Slot};
use super::session::{self, Learnt, Session};

/// A connection whose session is prepared.
pub(super) struct Ready {
    pub(super) conn: PgConnection,
    pub(super) session: Session,
    /// Whether the claim is prepared in it.
    pub(super) claims: bool,
    /// Whether the INSERT of a staged message is.
    pub(super) stages: bool,
    /// Whether it has been in use before.
    pub(super) used: bool,
}

/// The state that the connections of a store share.
pub(super) struct Shared {
    pub(super) login: Login,
    pub(super) durable: bool,
    pub(super) isolation: Isolation,
    /// A pooler is in between: each transaction may run in a different session of the server.
    pub(super) pooled: bool,
    /// Whether the settings of a handler are undone before the next one of its batch.
    pub(super) resets: AtomicBool,
    pub(super) room: Room<Ready>,
    /// Limits the connections for idem's own statements, so that they do not use up those of the handlers.
    pub(super) own: std::sync::Arc<Semaphore>,
    pub(super) logins: Semaphore,
    pub(super) learnt: Mutex<Option<Learnt>>,
}

impl Shared {
    /// Returns a new connection, or one that became idle while others were opened.
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
        // An error of the callback for credentials says nothing about the idle connections, so they are kept.
        let options = self.login.options().await?;
        let ready = timeout(CONNECT, self.new_session(of, options)).await;
        let ready = ready.unwrap_or_else(|late| Err(Failure::Lost(late.into())));
        if ready.is_err() {
            self.room.empty();
        }
        ready
    }

    async fn new_session(&self, of: Use, options: PgConnectOptions) -> Result<Ready, Failure> {
        let learnt = self.learnt().clone();
        let options = match self.pooled {
            // A pooler accepts no settings: its sessions start with the role's settings.
            true => options,
            false => session::started(options, of, self.durable, learnt.as_ref()),
        };
        let mut conn = self.login.connect(options).await?;
        let mut session = Session::of(&mut conn, of == Use::Lent && !self.pooled).await?;
        let learnt = session.learn(&mut conn, learnt).await?;
        if of == Use::Own {
            *self.learnt() = Some(learnt);
        }
        if !self.pooled {
            session.prepare(&mut conn, of, self.durable).await?;
        }
        // sqlx counts how deep transactions are nested. From here on it counts one level for the connection's life,
        // while BEGIN, COMMIT and ROLLBACK are plain text: `tx.begin()` in a handler is always a savepoint, and its
        // `commit()` never commits the claim.
        std::mem::forget(conn.begin_with("BEGIN").await?);
        sqlx::raw_sql("ROLLBACK").execute(&mut conn).await?;
        Ok(Ready { conn, session, claims: false, stages: false, used: false })
    }

    fn learnt(&self) -> MutexGuard<'_, Option<Learnt>> {
        self.learnt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
