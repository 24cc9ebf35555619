//! Apache Kafka as a source of idem.

mod acker;
mod assigned;
#[cfg(test)]
mod captured;
mod config;
mod connection;
mod consumer;
mod delivery;
mod error;
mod group;
mod horizon;
mod identity;
mod judge;
mod plan;
mod property;
mod shared;
mod source;
mod start;
mod tracker;

pub use acker::KafkaAcker;
pub use config::{Kafka, Options};
pub use source::Topic;
pub use start::Start;
