//! BEGIN, and what is set for a transaction.

use std::time::Duration;

use super::limits::LOCK_WAIT;
use super::session::Session;

/// What kind of connections a store has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// Each transaction may have another session of the server: a pooler is between.
    pub(super) pooled: bool,
    /// idem's transactions insist on durability.
    pub(super) durable: bool,
}

/// How much longer than its deadline a handler may leave the session idle: the deadline is kept here, and the server's
/// limit is for when here is no more.
const MARGIN: Duration = Duration::from_secs(10);

/// BEGIN, with the limits of a handler of this deadline.
///
/// READ WRITE, because outside of idem's transactions a lent session is read-only. Without what the session knows of sequences:
/// the last value would be another message's, or that of a row of the inbox.
pub(super) fn text(session: &Session, kind: Kind, deadline: Duration) -> String {
    let lock = lock_wait(session, deadline);
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE; DISCARD SEQUENCES; {}",
        limits(session, kind, deadline, &lock.to_string())
    )
}

/// What is set for a transaction.
pub(super) fn limits(session: &Session, kind: Kind, deadline: Duration, lock_timeout: &str) -> String {
    let mut text = format!(
        "SET LOCAL lock_timeout = {lock_timeout}; SET LOCAL statement_timeout = {}; \
         SET LOCAL idle_in_transaction_session_timeout = {};",
        statement_timeout(session, deadline),
        millis(deadline.saturating_add(MARGIN)),
    );
    if kind.pooled {
        text += &session.pooled();
        if kind.durable {
            text += &format!(" SET LOCAL synchronous_commit = {};", session.synchronous_commit());
        }
    }
    text
}

fn statement_timeout(session: &Session, deadline: Duration) -> u64 {
    match session.statement_timeout {
        0 => millis(deadline),
        set => set.min(millis(deadline)),
    }
}

/// Shorter than the statement's, or a claim that is held up would look like a server that is too slow.
pub(super) fn lock_wait(session: &Session, deadline: Duration) -> u64 {
    (statement_timeout(session, deadline) / 2).clamp(1, LOCK_WAIT)
}

/// In whole milliseconds, from 1 (0 would be no limit) to the highest that the server takes.
fn millis(limit: Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).clamp(1, i32::MAX as u64)
}
