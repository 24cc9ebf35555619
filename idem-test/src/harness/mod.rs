//! The users' harness: a handler, delivered in every way that a broker and a crash can think of.

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
