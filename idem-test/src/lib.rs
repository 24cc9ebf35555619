//! The test kit of idem: a broker in the process, a harness for handlers, and the conformance suites.
//!
//! | module | for |
//! |---|---|
//! | [`broker`] | tests that need a queue, and its faults |
//! | [`harness`] | users: one handler, delivered in every way, with crashes |
//! | [`conformance`] | authors of sources and stores |
//! | [`tap`] | a source that does what another one does, except where a test says otherwise |
//!
//! Nothing in here sleeps for luck: what a test waits for is a signal of the broker or of the store.

pub mod broker;
mod captured;
pub mod conformance;
pub mod harness;
pub mod tap;
mod tapped_store;

pub use broker::{Broker, Counts, Publication, Queue};
pub use captured::{Captured, captured};
pub use harness::{Crash, Trial};
pub use tap::Tapped;
