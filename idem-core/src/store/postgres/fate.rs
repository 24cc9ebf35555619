//! The fate of a transaction whose connection was dropped.

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::store::{Fate, StoreError, Ticket};

use super::Postgres;
use super::answer::Failure;
use super::connection::Connection;
use super::prepared;

const STATUS: &str = "SELECT pg_catalog.pg_xact_status($1::text::pg_catalog.xid8)";

/// Identifies the backend by the transaction id and the session, so that no other one is terminated, even behind a
/// pooler.
const END: &str = "
    SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
    WHERE backend_xid = ($1::text::pg_catalog.xid8)::pg_catalog.xid AND pid = coalesce($2, pid)
      AND pid <> pg_catalog.pg_backend_pid()";

impl Postgres {
    /// Returns the fate of a transaction of another connection. A transaction that is still running is terminated: its
    /// client is gone, and it holds the claim. So does one that its handler has prepared, which is rolled back.
    pub(super) async fn fate_of(&self, ticket: &Ticket) -> Result<Fate, StoreError> {
        let mut connection = self.pool().own().await?;
        let asked = sqlx::query(STATUS).bind(&ticket.number);
        let rows = match connection.autocommit(asked).await {
            Ok(rows) => rows,
            // 22023: the id is in the future of this server, which took over from a server that was ahead. The
            // transaction never happened here.
            Err(failure) if failure.code() == Some("22023") => return Ok(Fate::RolledBack),
            Err(failure) => return Err(failure.into()),
        };
        let status: Option<String> = rows.first().map_or(Ok(None), |row: &PgRow| row.try_get(0))?;
        let fate = match status.as_deref() {
            // In a separate statement: the snapshot of the first one may be older than the commit.
            Some("committed") if self.is_ours(&mut connection, ticket).await? => Fate::Committed,
            Some("in progress") => Fate::Running,
            // Aborted; or the id was reused by another transaction; or it is too old to be known, and then the claim
            // decides.
            _ => Fate::RolledBack,
        };
        let mut refused = false;
        if fate == Fate::Running {
            match prepared::roll_back(&mut connection, &ticket.number).await {
                Ok(true) => {
                    connection.put_back();
                    return Ok(Fate::Ended);
                }
                Ok(false) => {}
                // It may not be prepared at all: a role may lack the privilege to look.
                Err(Failure::Refused(_)) => refused = true,
                Err(lost) => return Err(lost.into()),
            }
            let end = sqlx::query(END).bind(&ticket.number).bind(ticket.session);
            // If the role lacks the privilege, the caller waits for the transaction to end.
            if let Err(failure) = connection.autocommit(end).await {
                tracing::debug!(error = failure.into_error(), "a transaction that was cut off could not be ended");
                return Ok(fate);
            }
        }
        if !refused {
            connection.put_back();
        }
        Ok(fate)
    }

    /// Returns whether a committed transaction with the ticket's id is the ticket's. A server that crashed knows only the
    /// transactions in its log, and the log is flushed at a commit (PostgreSQL manual, 30.3), so it may reuse the id of a
    /// transaction that was open. The claim is unambiguous: it carries the id.
    ///
    /// Without a claim, nothing is known, and the message of a natural handler counts as not run: it runs again.
    async fn is_ours(&self, connection: &mut Connection, ticket: &Ticket) -> Result<bool, Failure> {
        let Some((handler, key)) = &ticket.claim else {
            return Ok(false);
        };
        let query = self.sql().stands.query().bind(handler.0).bind(key.as_bytes()).bind(&ticket.number);
        Ok(!connection.autocommit(query).await?.is_empty())
    }
}
