//! Real servers for tests: found, started as temporary instances, or installed.
//!
//! `cargo xtask services` and `cargo xtask test` share one instance of each server ([`up`], [`down`], [`status`]).
//! A test that stops, kills or pauses a server starts a private one:
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! let mut server = idem_services::Postgres::start()?;
//! let url = server.url();
//! server.pause()?;
//! server.resume()?;
//! # Ok(())
//! # }
//! ```

mod apt;
mod browser;
mod instance;
mod java;
mod kafka;
mod moto;
mod nats;
mod place;
mod postgres;
mod process;
mod rabbitmq;
mod redis;
mod server;
mod shared;
mod sqs;

pub use apt::{chromium, program, tools};
pub use browser::Browser;
pub use instance::Instance;
pub use kafka::Kafka;
pub use moto::Moto;
pub use nats::Nats;
pub use place::root;
pub use postgres::Postgres;
pub use rabbitmq::{RabbitMq, Secure};
pub use redis::Redis;
pub use shared::{Status, down, exports, prepare, status, up};
pub use sqs::Sqs;
