//! The harness for users: runs a handler under every kind of delivery and crash.

mod cleanup;
mod connect;
mod crash;
#[cfg(feature = "postgres")]
mod fresh_schema;
mod process;
mod sending;
mod source;
mod store;
mod trial;

pub use crash::Crash;
#[cfg(feature = "postgres")]
pub use fresh_schema::FreshSchema;
pub use sending::Sending;
pub use trial::{Bench, Trial};
