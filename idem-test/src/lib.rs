//! The test kit of idem: a broker in the process, a harness for handlers, and the conformance suites.
//!
//! Nothing in here sleeps for luck: what a test waits for is a signal of the broker or of the store.

pub mod broker;
pub mod conformance;

pub use broker::{Broker, Counts, Publication, Queue};
