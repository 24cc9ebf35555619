//! What the server's answers to idem's own statements mean.

use std::fmt;

use sqlx::error::DatabaseError;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

use crate::BoxError;
use crate::store::StoreError;

/// Why a statement has no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server has answered, and the session goes on.
    Refused(Box<PgDatabaseError>),
    /// There was no answer, or it was the session's last one. Whether the statement had an effect is not known.
    Lost(BoxError),
}

impl Failure {
    /// The error that the server answered with, if the session goes on after it.
    pub(super) fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(error) => Some(error.code()),
            Self::Lost(_) => None,
        }
    }

    /// Whether other transactions are the reason: that says nothing about the session.
    pub(super) fn is_ordinary(&self) -> bool {
        matches!(self.code(), Some("55P03" | "40001" | "40P01" | "23505"))
    }

    /// What happened.
    pub(super) fn into_error(self) -> BoxError {
        match self {
            Self::Refused(error) => error,
            Self::Lost(error) => error,
        }
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        match error {
            // A killed backend says so before it goes, as an ordinary error message of severity FATAL.
            sqlx::Error::Database(error) => match error.try_downcast::<PgDatabaseError>() {
                Ok(error) if lasting(&error) => Self::Refused(error),
                Ok(error) => Self::Lost(error),
                Err(error) => Self::Lost(error),
            },
            error => Self::Lost(error.into()),
        }
    }
}

/// Whether the session goes on after this error.
fn lasting(error: &PgDatabaseError) -> bool {
    !matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic)
        && !error.code().starts_with("08")
        && !error.code().starts_with("57P")
}

/// What a refused statement of idem's own was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// No message in particular.
    Nothing,
    /// One message, or several of which each can be tried alone.
    Messages,
    /// The same, and their payloads are written.
    Payloads,
}

impl Failure {
    /// Whose fault it is. This is the one table of SQLSTATEs (PostgreSQL manual, appendix A).
    pub(super) fn fault(self, about: About) -> StoreError {
        let code = match self {
            Self::Lost(error) => return StoreError::ConnectionLost(error),
            Self::Refused(ref error) => error.code().to_owned(),
        };
        let error = Box::new(Coded { code: code.clone(), error: self.into_error() });
        match code.as_str() {
            "55P03" => StoreError::LockTimeout,
            "40001" | "40P01" => StoreError::Serialization(error),
            // Cancelled: its time ran out, or an operator did it. A payload that takes too long does so again.
            "57014" if about == About::Payloads => StoreError::Message(error),
            "57014" => StoreError::ConnectionLost(error),
            // A constraint that is not idem's: CHECK, EXCLUDE, UNIQUE.
            "23514" | "23P01" | "23505" if about != About::Nothing => StoreError::Message(error),
            // Data exceptions, limits of the program (a value that is too large), and a trigger that raises an error.
            code if about != About::Nothing && ["22", "54", "P0"].iter().any(|class| code.starts_with(class)) => {
                StoreError::Message(error)
            }
            // Among others: 25006 read-only, 42 no table or no right, 53 no room, no memory.
            _ => StoreError::Unavailable(error),
        }
    }
}

/// The server's answer, with its code before the text: texts are translated, and a code can be looked up.
#[derive(Debug)]
struct Coded {
    code: String,
    error: BoxError,
}

impl fmt::Display for Coded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.error)
    }
}

impl std::error::Error for Coded {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// Of a statement that is about no message.
impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        failure.fault(About::Nothing)
    }
}

/// A row that does not look as idem's own statements make it: somebody has changed the tables.
impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        Self::Unavailable(error.into())
    }
}

/// Whether an error, or one of its sources, is the server's word for a lost race. A wrapper that is transparent hands out
/// the source of what it wraps, so that sqlx's own error may not be in the chain; its source is the boxed one.
pub(super) fn is_lost_race(error: &(dyn std::error::Error + 'static)) -> bool {
    says(error, &["40001", "40P01"])
}

/// Whether it is the server's word for a deadlock.
pub(super) fn is_deadlock(error: &(dyn std::error::Error + 'static)) -> bool {
    says(error, &["40P01"])
}

fn says(error: &(dyn std::error::Error + 'static), codes: &[&str]) -> bool {
    crate::error::chain(error).any(|part| {
        let server = match part.downcast_ref::<sqlx::Error>() {
            Some(error) => error.as_database_error(),
            None => part.downcast_ref::<Box<dyn DatabaseError>>().map(AsRef::as_ref),
        };
        let code = server.and_then(DatabaseError::code);
        code.is_some_and(|code| codes.contains(&code.as_ref()))
    })
}
