//! Tests specific to SQLite. The suite in idem-conformance covers what all stores have in common.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails, in its helpers too")]

mod faults;
mod guard;
mod inbox;
mod nested;
mod open;
mod own;
mod prune;
mod sessions;
mod views;
mod world;
mod writer;
