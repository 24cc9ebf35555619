#![doc = include_str!("docs/crate.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod docs;
mod missing;
pub mod prelude;

pub use idem_core::{
    Acker, Batch, BoxError, CloudEvent, Codec, DecodeError, Delivery, DeliveryOrder, Error, Extract, Extraction,
    Fingerprint, FromRef, Handler, HasConnection, Headers, Health, IdempotencyKey, Inbox, Input, Json, Key, KeyError,
    KeyPart, Lag, MAX_KEY, NoHandlers, Outcome, Param, PartitionKey, PrepareError, Properties, Reason, ReplayWindow,
    RetryPolicy, Settled, Source, State, Store, Subject, SubscribeOptions, WithHandlers, Worker, Workers, permanent,
    retry_after, shutdown_signal, store,
};
pub use idem_macros::idempotent;

#[cfg(feature = "postgres")]
pub use idem_core::Postgres;
#[cfg(feature = "protobuf")]
pub use idem_core::Protobuf;
#[cfg(feature = "sqlite")]
pub use idem_core::Sqlite;
#[cfg(feature = "kafka")]
pub use idem_kafka::{self as kafka, Kafka};
#[cfg(feature = "nats")]
pub use idem_nats::{self as nats, Nats};
#[cfg(feature = "rabbitmq")]
pub use idem_rabbitmq::{self as rabbitmq, RabbitMq};

#[doc(hidden)]
pub use idem_core::{__private, SuspectLock};

#[allow(unused_imports, unreachable_pub, reason = "with all features, nothing is missing")]
#[doc(hidden)]
pub use missing::*;

/// Compiles the program of the README.
#[cfg(all(doctest, feature = "postgres", feature = "rabbitmq"))]
#[doc = include_str!("../README.md")]
mod readme {}

/// Compiles the examples of the attribute, which cannot use this crate from their own.
#[cfg(doctest)]
#[doc = include_str!("docs/idempotent.md")]
mod idempotent_examples {}
