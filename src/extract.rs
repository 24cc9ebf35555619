//! The parameters of a handler besides its message and its transaction.

pub use idem_core::{
    CloudEvent, Extract, Extraction, FromRef, Headers, IdempotencyKey, Outbox, Param, PartitionKey, State, Subject,
};
