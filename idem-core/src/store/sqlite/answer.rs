//! The meaning of the database's errors.

use std::path::Path;

use crate::store::StoreError;
use crate::{BoxError, Error};

/// SQLITE_ERROR: among others, "no such savepoint" and "no transaction is active".
pub(super) const ERROR: i32 = 1;
/// SQLITE_BUSY: another process is writing.
pub(super) const BUSY: i32 = 5;
/// SQLITE_LOCKED: another connection of this process, over a shared cache, is writing.
pub(super) const LOCKED: i32 = 6;
/// SQLITE_CONSTRAINT: at COMMIT, a deferred foreign key.
pub(super) const CONSTRAINT: i32 = 19;

/// The primary result code: the low byte of the extended one, which sqlx reports (SQLite manual, "Result and Error
/// Codes"). `None` if the error does not come from the database.
pub(super) fn code(error: &sqlx::Error) -> Option<i32> {
    let code = error.as_database_error()?.code()?.parse::<i32>().ok()?;
    Some(code & 0xff)
}

/// Returns whether another connection has locked the file.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(code(error), Some(BUSY | LOCKED))
}

/// SQLITE_INTERRUPT: the statement timed out.
const INTERRUPT: i32 = 9;
/// SQLITE_TOOBIG: a value is too large.
const TOO_BIG: i32 = 18;
/// SQLITE_MISMATCH: a value has the wrong type.
const MISMATCH: i32 = 20;

/// Classifies an error in one of idem's own statements, which is about one message, or about several that can be tried
/// singly, or about none. This is the only table of result codes for `StoreError`; `txn.rs` has those of a COMMIT.
pub(super) fn fault(file: &Path, error: sqlx::Error, about_messages: bool) -> StoreError {
    let (code, has_thread) = (code(&error), !matches!(error, sqlx::Error::WorkerCrashed | sqlx::Error::Io(_)));
    let error = failed(file, error).into();
    match code {
        Some(BUSY | LOCKED) => StoreError::LockTimeout,
        // A CHECK constraint or a trigger that was added to idem's tables.
        Some(CONSTRAINT | TOO_BIG | MISMATCH) if about_messages => StoreError::Message(error),
        Some(INTERRUPT) => StoreError::ConnectionLost(error),
        // The connection's thread has ended.
        None if !has_thread => StoreError::ConnectionLost(error),
        // Among others: no table (1), read-only (8), the file cannot be read or written (10), damaged (11), full (13).
        _ => StoreError::Unavailable(error),
    }
}

/// SQLITE_READONLY: this user, or this connection, may not write.
const READ_ONLY: i32 = 8;

/// Classifies an error again that an operator gets: a file that may not be written is no outage for him.
pub(super) fn of_operator(fault: StoreError) -> StoreError {
    let is_read_only = |error: &BoxError| {
        let mut chain = crate::error::chain(error.as_ref()).filter_map(|part| part.downcast_ref::<sqlx::Error>());
        chain.any(|error| code(error) == Some(READ_ONLY))
    };
    match fault {
        StoreError::Unavailable(error) if is_read_only(&error) => StoreError::Denied(error),
        fault => fault,
    }
}

/// Classifies an error after which a transaction was neither committed nor rolled back for certain.
pub(super) fn unknown(file: &Path, error: sqlx::Error) -> StoreError {
    match fault(file, error, false) {
        fault @ (StoreError::ConnectionLost(_) | StoreError::Unavailable(_)) => fault,
        other => StoreError::ConnectionLost(other.into()),
    }
}

/// Returns the error with the name of the file, and the fix, in front of it.
pub(super) fn failed(file: &Path, error: sqlx::Error) -> Error {
    Error::Database { what: trouble(file, &error), source: error.into() }
}

/// Describes what is wrong with the file, and the fix.
fn trouble(file: &Path, error: &sqlx::Error) -> String {
    let why = match code(error) {
        Some(ERROR) => {
            "does not have the tables of this version: connect once without verify_only(), or run the SQL of \
             `Sqlite::migrations()` by hand"
        }
        Some(BUSY | LOCKED) => {
            "is locked by another process for longer than 5 s: end its transaction, and keep write transactions short"
        }
        Some(READ_ONLY) => "is read-only: let this user write the file and its directory, and take out mode=ro",
        Some(10) => "cannot be read or written: look at the disk and the file system",
        Some(11) => "is damaged: restore it, or rescue it with the `.recover` of sqlite3",
        Some(13) => "cannot grow, since its disk is full: free some space",
        Some(14) => {
            "cannot be opened: it may not be a directory, its directory has to exist, and this user has to be allowed to write \
             both. If it does not exist yet, connect once without verify_only()"
        }
        Some(26) => "is not an SQLite database: name another file, or move this one away so that a new one is created",
        Some(CONSTRAINT | TOO_BIG | MISMATCH) => {
            "refuses the row: look at its size, and at constraints and triggers that were added to idem's tables"
        }
        _ => "cannot be used",
    };
    format!("the SQLite file {} {why}", file.display())
}
