//! Tests on a server with the protocol of DynamoDB. They are one program, since each would link the client again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod common;
mod conformance;
mod costs;
mod fake;
mod faults;
mod input;
mod kills;
mod start;
