//! Tests on a real server. They are one program, since each would link the client again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod common;
mod conformance;
mod counting;
mod input;
mod kills;
mod outages;
mod permissions;
mod start;
