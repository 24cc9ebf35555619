//! The test kit of idem: an in-process broker and a harness for handlers.
//!
//! | module | for |
//! |---|---|
//! | [`broker`] | tests that need a queue and its faults |
//! | [`harness`] | users: runs one handler under every kind of delivery and crash |
//! | [`provider`] | a payment provider, for tests of external calls |
//! | `requests` | a service whose HTTP requests run once |
//! | [`tap`] | a source that wraps another one and overrides what a test needs |
//! | `sink` | a sink in memory, for tests of relays |
//! | `tapped_store`, `trace` | a store that wraps another one, and can write what it does |
//!
//! No test sleeps and hopes: each waits for a signal of the broker or of the store.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod broker;
pub mod harness;
pub mod provider;
#[cfg(feature = "http")]
mod requests;
mod sink;
pub mod tap;
#[doc(hidden)]
pub mod tapped_store;
#[doc(hidden)]
pub mod trace;

pub use broker::{Broker, Counts, Publication, Queue};
pub use harness::{Crash, Trial};
#[cfg(feature = "http")]
pub use harness::{ServiceTrial, requests_of};
#[cfg(feature = "http")]
pub use requests::{RequestTrial, requests};
pub use sink::{MemorySink, Reply};
pub use tap::{Tapped, TappedSink};
