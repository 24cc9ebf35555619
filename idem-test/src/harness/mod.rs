//! The harness for users: runs a handler under every kind of delivery and crash.

mod connect;
mod crash;
mod process;
mod sending;
mod source;
mod store;
mod trial;

pub use crash::Crash;
pub use sending::Sending;
pub use trial::{Bench, Trial};
