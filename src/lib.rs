#![doc = include_str!("docs/crate.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod adapter;
pub mod codec;
pub mod docs;
pub mod external;
pub mod extract;
pub mod handler;
mod missing;
pub mod outbox;
pub mod prelude;

pub use idem_core::{
    Batch, BoxError, Delivery, DeliveryOrder, Engine, Error, Fingerprint, Handler, Headers, Health, Key, KeyPart,
    Observed, Outcome, Reason, Relay, RetryPolicy, Source, State, Store, Worker, Workers, key_value, operator,
    permanent, retry_after, shutdown_signal, store,
};
pub use idem_macros::{KeyPart, idempotent};

#[cfg(feature = "postgres")]
pub use idem_core::Postgres;
#[cfg(feature = "sqlite")]
pub use idem_core::Sqlite;
#[cfg(feature = "dynamodb")]
#[doc(inline)]
pub use idem_dynamodb::{self as dynamodb, DynamoDb};
#[cfg(feature = "http")]
#[doc(inline)]
pub use idem_http as http;
#[cfg(feature = "kafka")]
#[doc(inline)]
pub use idem_kafka::{self as kafka, Kafka};
#[cfg(feature = "nats")]
#[doc(inline)]
pub use idem_nats::{self as nats, Nats};
#[cfg(feature = "page")]
#[doc(inline)]
pub use idem_page as page;
#[cfg(feature = "rabbitmq")]
#[doc(inline)]
pub use idem_rabbitmq::{self as rabbitmq, RabbitMq};
#[cfg(feature = "redis")]
#[doc(inline)]
pub use idem_redis::{self as redis, Redis};
#[cfg(feature = "sqs")]
#[doc(inline)]
pub use idem_sqs::{self as sqs, Sqs};

#[doc(hidden)]
pub use idem_core::{__private, IsolationLock};

#[allow(unused_imports, unreachable_pub, reason = "with all features, nothing is missing")]
#[doc(hidden)]
pub use missing::*;

/// Compiles the program of the README.
#[cfg(all(doctest, feature = "postgres", feature = "rabbitmq"))]
#[doc = include_str!("../README.md")]
mod readme {}

/// Compiles the examples of the macros, which cannot use this crate from their own.
#[cfg(doctest)]
#[doc = include_str!("docs/idempotent.md")]
#[doc = include_str!("docs/key_part.md")]
mod macro_examples {}
