//! Tests on a real server. They are one program, since each would link the client again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod common;
mod conformance;
mod consumers;
mod deliveries;
mod domains;
mod leases;
mod logins;
mod losses;
mod recreated;
mod settling;
mod sink;
mod sink_servers;
mod start;
mod tls;
mod unreadable;
