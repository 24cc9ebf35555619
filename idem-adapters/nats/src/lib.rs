//! NATS JetStream as a source of idem.
#![doc = ""]

mod acker;
mod address;
mod config;
mod connection;
mod consumer;
mod delivery;
mod difference;
mod error;
mod keeper;
mod lease;
mod pull;
mod source;
mod tls;

pub use acker::NatsAcker;
pub use config::{Nats, Options};
pub use consumer::Start;
pub use source::Stream;
