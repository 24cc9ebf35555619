//! The statements that begin a transaction.

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

/// Sets the limits of a transaction, and returns its id. Prepared once per connection: one statement costs the server less than
/// one for each limit.
///
/// `set_config` returns no null, so that both are evaluated. The lock timeout is missing, since most sessions still have their own.
pub(super) const PREPARE: &str = "PREPARE idem_begin (text, text) AS SELECT pg_catalog.pg_current_xact_id()::text
         WHERE pg_catalog.set_config('statement_timeout', $1, true) IS NOT NULL
           AND pg_catalog.set_config('idle_in_transaction_session_timeout', $2, true) IS NOT NULL";
