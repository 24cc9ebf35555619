//! Tests on a real server. They are one program, since each would link the client again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod acks;
mod common;
mod conformance;
mod credentials;
mod declare;
mod deliveries;
mod hosts;
mod limits;
mod losses;
mod refusals;
mod several;
mod sink;
mod start;
mod tls;
mod unreadable;
