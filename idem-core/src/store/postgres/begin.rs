//! BEGIN, and the settings of a transaction.

use std::time::Duration;

use super::begin_sql::Isolation;
use super::limits::LOCK_WAIT;
use super::session::Session;

/// The kind of connections of a store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// A pooler is in between: each transaction may run in a different session of the server.
    pub(super) pooled: bool,
    /// idem's transactions enforce durability.
    pub(super) durable: bool,
    /// That of the transactions of messages.
    pub(super) isolation: Isolation,
}

/// How much longer than the handler timeout the session may stay idle. This process enforces the timeout; the
/// server-side limit applies if this process dies.
const MARGIN: Duration = Duration::from_secs(10);

/// Returns BEGIN, with the limits for a handler with this timeout. idem's own transactions are read committed.
///
/// READ WRITE, because a lent session is read-only outside of idem's transactions. The session's sequence values are
/// discarded: the last value would be that of another message, or of an inbox row.
pub(super) fn text(session: &Session, kind: Kind, handler_timeout: Duration) -> String {
    with(Isolation::ReadCommitted, session, kind, handler_timeout)
}

fn with(isolation: Isolation, session: &Session, kind: Kind, handler_timeout: Duration) -> String {
    let lock_timeout = lock_wait(session, handler_timeout).to_string();
    format!("{}; {}", isolation.begin(), limits(session, kind, handler_timeout, &lock_timeout))
}

/// The same for a transaction in which a handler may run.
pub(super) fn lent(session: &Session, kind: Kind, handler_timeout: Duration) -> String {
    with(kind.isolation, session, kind, handler_timeout)
}

/// The same for a handler that follows at once, without a claim. Its statements wait for locks as the session did when it
/// logged in. A session whose lock timeout comes from its role, the database, the server or the URL still has it, since RESET
/// ALL ends each message; any other has to be told. The last row of the answer has the transaction id, which it also assigns:
/// otherwise a handler that has written nothing and runs COMMIT could not be told from one that has not run it.
pub(super) fn guarded(session: &Session, kind: Kind, handler_timeout: Duration) -> String {
    let begin = kind.isolation.begin();
    if kind.pooled {
        let limits = limits(session, kind, handler_timeout, &session.lock_timeout);
        return format!("{begin}; {limits} SELECT pg_catalog.pg_current_xact_id()::text");
    }
    let (statement_timeout, idle) = (statement_timeout(session, handler_timeout), idle_timeout(handler_timeout));
    let lock_timeout = match session.keeps_lock_timeout {
        true => String::new(),
        false => format!(" SET LOCAL lock_timeout = '{}';", session.lock_timeout),
    };
    format!("{begin};{lock_timeout} EXECUTE idem_begin('{statement_timeout}', '{idle}')")
}

/// Returns the statements that set the limits of a transaction. `lock_timeout` is a number of milliseconds, or has a unit.
pub(super) fn limits(session: &Session, kind: Kind, handler_timeout: Duration, lock_timeout: &str) -> String {
    let mut text = format!(
        "SET LOCAL lock_timeout = '{lock_timeout}'; SET LOCAL statement_timeout = {}; \
         SET LOCAL idle_in_transaction_session_timeout = {};",
        statement_timeout(session, handler_timeout),
        idle_timeout(handler_timeout),
    );
    if kind.pooled {
        text += &session.pooled();
        if kind.durable {
            text += &format!(" SET LOCAL synchronous_commit = {};", session.synchronous_commit());
        }
    }
    text
}

fn statement_timeout(session: &Session, handler_timeout: Duration) -> u64 {
    match session.statement_timeout {
        0 => millis(handler_timeout),
        set => set.min(millis(handler_timeout)),
    }
}

fn idle_timeout(handler_timeout: Duration) -> u64 {
    millis(handler_timeout.saturating_add(MARGIN))
}

/// Shorter than the statement timeout; otherwise a claim that waits for a lock would look like a slow server.
pub(super) fn lock_wait(session: &Session, handler_timeout: Duration) -> u64 {
    (statement_timeout(session, handler_timeout) / 2).clamp(1, LOCK_WAIT)
}

/// Converts to whole milliseconds, from 1 (0 would mean no limit) to the highest value that the server accepts.
fn millis(limit: Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).clamp(1, i32::MAX as u64)
}
