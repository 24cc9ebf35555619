//! Connections whose sessions are prepared, and how new ones are opened.

use parking_lot::Mutex;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};

use super::answer::Failure;
use super::begin::Kind;
use super::limits::Use;
use super::login::Login;
use super::session::{self, Session};

/// A connection whose session is prepared.
pub(super) struct Ready {
    pub(super) conn: PgConnection,
    pub(super) session: Session,
    /// Whether it has been in use before.
    pub(super) used: bool,
}

/// Opens connections.
pub(super) struct Opener {
    pub(super) login: Login,
    pub(super) kind: Kind,
    /// Prepares the statements of a transaction that a handler may use.
    pub(super) prepare: String,
    /// Prepares those that write what it stages.
    pub(super) writes: String,
    /// The first session of idem's own, which tells what later ones start with.
    pub(super) first: Mutex<Option<Session>>,
}

impl Opener {
    /// Logs in with these options, and prepares the session.
    pub(super) async fn open(&self, of: Use, options: PgConnectOptions) -> Result<Ready, Failure> {
        let pooled = self.kind.pooled;
        let first = self.first.lock().clone();
        let options = match pooled {
            // A pooler accepts no settings: its sessions start with the role's settings.
            true => options,
            false => session::started(options, of, first.as_ref()),
        };
        let mut conn = self.login.connect(options).await?;
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
}
