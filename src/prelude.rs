//! The items that a program with handlers needs: `use idem::prelude::*`.
//!
//! It contains no error type, so that the program's own `Error` and `Result` keep their meaning.

pub use crate::{
    Batch, BoxError, CloudEvent, Delivery, Handler, Headers, IdempotencyKey, Inbox, Key, Outcome, PartitionKey,
    RetryPolicy, State, Subject, Worker, Workers, idempotent, permanent,
};

#[cfg(feature = "postgres")]
pub use crate::Postgres;
#[cfg(feature = "sqlite")]
pub use crate::Sqlite;
#[cfg(feature = "kafka")]
pub use idem_kafka::Kafka;
#[cfg(feature = "nats")]
pub use idem_nats::Nats;
#[cfg(feature = "rabbitmq")]
pub use idem_rabbitmq::RabbitMq;
