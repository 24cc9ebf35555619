//! BEGIN, and the settings of a transaction.

use std::time::Duration;

use super::limits::LOCK_WAIT;
use super::session::Session;

/// How much the transaction of a message sees of those beside it (PostgreSQL manual, 13.2). Set by
/// [`PostgresOptions::isolation`](super::PostgresOptions::isolation).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Isolation {
    /// Each statement sees what was committed before it.
    ReadCommitted,
    /// All statements see what was committed before the first one.
    RepeatableRead,
    /// As if the transactions ran one after the other.
    Serializable,
}

impl Isolation {
    /// Returns BEGIN with this level.
    pub(super) fn begin(self) -> &'static str {
        match self {
            Self::ReadCommitted => "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE; DISCARD SEQUENCES",
            Self::RepeatableRead => "BEGIN ISOLATION LEVEL REPEATABLE READ, READ WRITE; DISCARD SEQUENCES",
            Self::Serializable => "BEGIN ISOLATION LEVEL SERIALIZABLE, READ WRITE; DISCARD SEQUENCES",
        }
    }

    /// Returns the level with this name. PostgreSQL treats `read uncommitted` as `read committed`.
    pub(super) fn of(name: &str) -> Self {
        match name {
            "serializable" => Self::Serializable,
            "repeatable read" => Self::RepeatableRead,
            _ => Self::ReadCommitted,
        }
    }
}

/// The kind of connections of a store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// A pooler is in between: each transaction may run in a different session of the server.
    pub(super) pooled: bool,
    /// That of the transactions of messages.
    pub(super) isolation: Isolation,
}

/// How much longer than the handler timeout the session may stay idle. This process enforces the timeout; the
/// server-side limit applies if this process dies.
const MARGIN: Duration = Duration::from_secs(10);

/// Returns BEGIN with this isolation, and with the limits for a handler with this timeout.
///
/// READ WRITE, because a lent session is read-only outside of idem's transactions. The session's sequence values are
/// discarded: the last value would be that of another message, or of an inbox row.
pub(super) fn text(isolation: Isolation, session: &Session, kind: Kind, handler_timeout: Duration) -> String {
    let lock_timeout = lock_wait(session, handler_timeout).to_string();
    format!("{}; {}", isolation.begin(), limits(session, kind, handler_timeout, &lock_timeout))
}

/// The same for a handler that follows at once, without a claim. Its statements wait for locks as the session did when it
/// logged in. The last row of the answer has the transaction id, which it also assigns: otherwise a handler that has written
/// nothing and runs COMMIT could not be told from one that has not run it.
pub(super) fn guarded(session: &Session, kind: Kind, handler_timeout: Duration) -> String {
    let limits = limits(session, kind, handler_timeout, &session.lock_timeout);
    format!("{}; {limits} SELECT pg_catalog.pg_current_xact_id()::text", kind.isolation.begin())
}

/// For the questions of operators, each of which needs the first rows of an index only. Behind a deploy that has just failed, most rows
/// are not yet visible to all transactions. PostgreSQL would rather read the whole table then, or collect all rows of an index.
const BY_INDEX: &str = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off;";

/// Returns BEGIN for a question of an operator, which changes nothing, and may take so long.
pub(super) fn read_only(session: &Session, kind: Kind, limit: Duration) -> String {
    let lock_timeout = lock_wait(session, limit).to_string();
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED, READ ONLY; {BY_INDEX} {}",
        limits(session, kind, limit, &lock_timeout)
    )
}

/// Returns the statements that set the limits of a transaction. `lock_timeout` is a number of milliseconds, or has a unit.
pub(super) fn limits(session: &Session, kind: Kind, handler_timeout: Duration, lock_timeout: &str) -> String {
    let mut text = format!(
        "SET LOCAL lock_timeout = '{lock_timeout}'; SET LOCAL statement_timeout = {}; \
         SET LOCAL idle_in_transaction_session_timeout = {};",
        statement_timeout(session, handler_timeout),
        millis(handler_timeout.saturating_add(MARGIN)),
    );
    if kind.pooled {
        text += &format!("{} SET LOCAL synchronous_commit = {};", session.pooled(), session.synchronous_commit());
    }
    text
}

fn statement_timeout(session: &Session, handler_timeout: Duration) -> u64 {
    match session.statement_timeout {
        0 => millis(handler_timeout),
        set => set.min(millis(handler_timeout)),
    }
}

/// Shorter than the statement timeout; otherwise a claim that waits for a lock would look like a slow server.
pub(super) fn lock_wait(session: &Session, handler_timeout: Duration) -> u64 {
    (statement_timeout(session, handler_timeout) / 2).clamp(1, LOCK_WAIT)
}

/// Converts to whole milliseconds, from 1 (0 would mean no limit) to the highest value that the server accepts.
fn millis(limit: Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).clamp(1, i32::MAX as u64)
}
