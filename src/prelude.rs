//! The items that a program with handlers needs: `use idem::prelude::*`.
//!
//! It contains no error type, so that the program's own `Error` and `Result` keep their meaning.

pub use crate::external::{CallError, Called, Found, OutboundKey, external};
pub use crate::extract::{CloudEvent, IdempotencyKey, PartitionKey, Subject};
pub use crate::handler::HandlerOptions;
pub use crate::outbox::{Outbox, Outgoing};
pub use crate::{
    Batch, BoxError, Delivery, Handler, Headers, Key, Outcome, Relay, RetryPolicy, State, Worker, Workers, idempotent,
    permanent, retry_after,
};

// Without its feature, each of these is a type whose use is an error that names the feature.
pub use crate::{DynamoDb, Kafka, Nats, Postgres, RabbitMq, Redis, Sqlite, Sqs};
