//! The pipeline, the traits for adapters and stores, the worker and the SQL stores of idem.
//!
//! Users depend on the facade `idem-rs`; authors of adapters and stores depend on this crate.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod advice;
mod age;
mod background;
mod call;
mod callback;
mod caught;
mod cloud_event;
mod codec;
mod delivery;
mod error;
mod external;
mod extract;
mod fingerprint;
mod handler;
mod handler_options;
mod headers;
mod inbox;
mod input;
mod key;
mod local;
#[cfg(test)]
mod log_of_tests;
pub mod operator;
mod outbox;
mod outcome;
mod panic_text;
mod park;
mod private;
mod process;
mod properties;
mod registry;
mod relay;
pub mod request;
mod retry;
mod routes;
mod run;
mod runtime;
mod source;
pub mod store;
mod subject;
mod take_over;
mod telemetry;
mod worker;

pub use advice::{permanent, retry_after};
pub use background::BackgroundTasks;
pub use callback::{Callback, Lag};
pub use cloud_event::CloudEvent;
#[cfg(feature = "protobuf")]
pub use codec::Protobuf;
pub use codec::{Codec, DecodeError, Json, PrepareError};
pub use delivery::Delivery;
pub use error::{BoxError, Error};
pub use external::{CallError, Called, CalledBy, External, Found, OutboundKey};
pub use extract::{Extract, Extraction, FromRef, IdempotencyKey, Param, PartitionKey, State, Subject};
pub use fingerprint::Fingerprint;
pub use handler::Handler;
pub use handler_options::{HandlerCodec, HandlerOptions, OwnCodec, WorkerCodec};
pub use headers::Headers;
pub use input::{Batch, Input};
pub use key::{Key, KeyError, KeyPart, MAX_KEY};
pub use local::LocalStaging;
pub use outbox::{Outbox, Outgoing, Sink, SinkConnection, SinkError, StagedMessage, Staging, StoreOutbox};
pub use outcome::{Observed, Outcome, Reason};
pub use properties::Properties;
pub use relay::Relay;
pub use retry::RetryPolicy;
pub use runtime::{Health, IsolationLock};
pub use source::{Acker, DeliveryOrder, ReplayWindow, Settled, Source, SubscribeOptions};
#[cfg(feature = "postgres")]
pub use store::postgres::Postgres;
#[cfg(feature = "sqlite")]
pub use store::sqlite::Sqlite;
pub use store::{HasConnection, Store};
pub use worker::{NoHandlers, WithHandlers, Worker, Workers, shutdown_signal};

#[doc(hidden)]
pub mod __private {
    pub use crate::private::*;
}
