//! The meaning of the server's errors.

use sqlx::error::DatabaseError;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

use crate::BoxError;
use crate::store::{ErrorClass, StoreError};

use super::commit::CHANGED;
use super::local_sql::RACED;

/// Why a statement has no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server answered with an error, and the session goes on.
    Refused(Box<PgDatabaseError>),
    /// There was no answer, or the session ended with it. Whether the statement took effect is unknown.
    Lost(BoxError),
}

impl Failure {
    /// Returns the SQLSTATE of the server's error, if the session goes on after it.
    pub(super) fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(error) => Some(error.code()),
            Self::Lost(_) => None,
        }
    }

    /// Returns whether the server's error contains this text.
    pub(super) fn says(&self, text: &str) -> bool {
        matches!(self, Self::Refused(error) if error.message().contains(text))
    }

    /// Returns whether the failure does not put the session in doubt: other transactions caused it, or an error of the handler
    /// before it, which has aborted the transaction; or the guard has found a setting that ends with the transaction. A batch is
    /// halved for that until each message is alone, and each half would cost a login.
    pub(super) fn is_ordinary(&self) -> bool {
        matches!(self.code(), Some("55P03" | "40001" | "40P01" | "23505" | "25P02"))
            || [CHANGED, RACED].iter().any(|text| self.says(text))
    }

    /// Returns whether the session is outdated.
    pub(super) fn is_outdated(&self) -> bool {
        matches!(self, Self::Refused(error) if outdated(error))
    }

    /// Returns the underlying error.
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
            // A backend that is killed first sends an ordinary error message of severity FATAL.
            sqlx::Error::Database(error) => match error.try_downcast::<PgDatabaseError>() {
                Ok(error) if lasting(&error) => Self::Refused(error),
                Ok(error) => Self::Lost(error),
                Err(error) => Self::Lost(error),
            },
            error => Self::Lost(error.into()),
        }
    }
}

/// Returns whether the session goes on after this error.
fn lasting(error: &PgDatabaseError) -> bool {
    !matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic)
        && !error.code().starts_with("08")
        && !error.code().starts_with("57P")
}

/// The purpose of one of idem's own statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// No message in particular.
    Nothing,
    /// One message, or several that can each be tried singly.
    Messages,
    /// As `Messages`, and the statement writes payloads.
    Payloads,
    /// As `Messages`, and an operator's role may lack the privilege, or the server be a standby.
    Operator,
}

impl Failure {
    /// Classifies the failure. This is the only table of SQLSTATEs for
    /// `StoreError` (PostgreSQL manual, appendix A); `commit.rs` has those of a COMMIT.
    pub(super) fn fault(self, about: About) -> StoreError {
        let code = match self {
            Self::Lost(error) => return StoreError::ConnectionLost(error),
            Self::Refused(ref error) => error.code().to_owned(),
        };
        // With the code in front: messages are localized, and a code can be looked up.
        let error: BoxError = format!("{code}: {}", self.into_error()).into();
        match code.as_str() {
            "55P03" => StoreError::LockTimeout,
            "40001" | "40P01" => StoreError::Serialization(error),
            // Cancelled, by a timeout or an operator. A payload that takes too long would do so again.
            "57014" if about == About::Payloads => StoreError::Message(error),
            "57014" => StoreError::ConnectionLost(error),
            // A constraint that is not idem's: CHECK, EXCLUDE, UNIQUE.
            "23514" | "23P01" | "23505" if about != About::Nothing => StoreError::Message(error),
            // Data exceptions, program limits (a value that is too large), and a trigger that raises an error.
            code if about != About::Nothing && ["22", "54", "P0"].iter().any(|class| code.starts_with(class)) => {
                StoreError::Message(error)
            }
            "42501" | "25006" if about == About::Operator => StoreError::Denied(error),
            // Among others: 25006 read-only, 42 no table or no privilege, 53 no disk space or memory.
            _ => StoreError::Unavailable(error),
        }
    }
}

/// Classifies the failure of a statement that is not about a message.
impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        failure.fault(About::Nothing)
    }
}

/// A row that idem's own statements cannot produce: the tables were changed.
impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        Self::Unavailable(error.into())
    }
}

/// Returns whether an error, or one of its sources, is the server's error for a lost race. A transparent wrapper
/// returns the source of the error that it wraps, so sqlx's own error may be missing from the chain; its source is the
/// boxed database error.
pub(super) fn race(error: &(dyn std::error::Error + 'static)) -> ErrorClass {
    let has_code = |code: &str| says(error, |server| server.code().is_some_and(|found| found == code));
    match has_code("40P01") {
        true => ErrorClass::Deadlock,
        false if has_code("40001") => ErrorClass::Race,
        false => ErrorClass::Ordinary,
    }
}

/// Returns whether an error, or one of its sources, says that its session is outdated.
pub(super) fn is_outdated(error: &(dyn std::error::Error + 'static)) -> bool {
    says(error, |server| server.try_downcast_ref().is_some_and(outdated))
}

/// Returns whether this error says that a session knows something that a migration has made untrue. sqlx keeps prepared
/// statements and the numbers of types for as long as the connection. Messages are localized, except those of XX000 (internal
/// error) and the names of functions.
fn outdated(error: &PgDatabaseError) -> bool {
    match error.code() {
        // An ALTER TABLE has changed the columns of the result of a prepared statement.
        "0A000" => error.routine() == Some("RevalidateCachedQuery"),
        // A prepared statement was deallocated, or there is another one of its name.
        "26000" | "42P05" => true,
        // A type, function or table was dropped, and perhaps created again with another number.
        "XX000" => ["cache lookup failed for ", "could not open relation with OID "]
            .iter()
            .any(|text| error.message().starts_with(text)),
        "42704" => matches!(error.routine(), Some("lookup_type_cache" | "getBaseTypeAndTypmod" | "typeidType")),
        _ => false,
    }
}

fn says(error: &(dyn std::error::Error + 'static), this: impl Fn(&(dyn DatabaseError + 'static)) -> bool) -> bool {
    crate::error::chain(error).any(|part| {
        let server = match part.downcast_ref::<sqlx::Error>() {
            Some(error) => error.as_database_error(),
            None => part.downcast_ref::<Box<dyn DatabaseError>>().map(AsRef::as_ref),
        };
        // The error of idem's own statements, such as COMMIT, has no wrapper.
        let server = server.or_else(|| part.downcast_ref::<PgDatabaseError>().map(|error| error as &dyn DatabaseError));
        server.is_some_and(&this)
    })
}
