//! What the errors of Redis mean for a worker.

use idem_core::store::StoreError;
use redis::RedisError;

use crate::script::FOREIGN;

/// Returns why a step failed: because of the message, of the connection, or of the server.
pub(crate) fn fault(error: RedisError) -> StoreError {
    match error.code() {
        // Both concern the keys of one message.
        Some(FOREIGN | "WRONGTYPE") => StoreError::Message(error.into()),
        // It has answered: OOM, READONLY, MISCONF, NOREPLICAS, NOAUTH, NOPERM, LOADING, BUSY, MASTERDOWN, and the unknown.
        Some(_) => StoreError::Unavailable(error.into()),
        None if error.is_io_error() || error.is_connection_dropped() || error.is_timeout() => {
            StoreError::ConnectionLost(error.into())
        }
        None => StoreError::Unavailable(error.into()),
    }
}

/// The error of an answer that no step of this version gives.
pub(crate) fn unexpected(step: &str) -> StoreError {
    StoreError::Unavailable(format!("the step `{step}` in Redis gave an answer that it cannot give").into())
}
