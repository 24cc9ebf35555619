//! What the server's answers to idem's own statements mean.

use sqlx::error::DatabaseError;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

use crate::BoxError;
use crate::store::Fault;

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

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        match failure.code() {
            Some("55P03") => Self::Busy,
            Some("40001" | "40P01") => Self::Retry(failure.into_error()),
            _ => Self::Outage(failure.into_error()),
        }
    }
}

/// A row that does not look as idem's own statements make it: somebody has changed the tables.
impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        Self::Outage(error.into())
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
