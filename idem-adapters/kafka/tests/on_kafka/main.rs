//! Tests on a real server. They are one program, since each would link the client again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod begins;
mod common;
mod conformance;
mod deliveries;
mod groups;
mod leaders;
mod losses;
mod producer;
mod protocols;
mod secure_logins;
mod settling;
mod sink;
mod start;
mod tls;
mod tokens;
mod topics;
