//! What is special to SQLite. What all stores have in common is in the conformance suite of idem-test.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails, in its helpers too")]

mod faults;
mod guard;
mod inbox;
mod nested;
mod open;
mod prune;
mod world;
mod writer;
