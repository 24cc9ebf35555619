//! Tests on real servers, ElasticMQ and moto. They are one program, since each would link the client again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod answers;
mod common;
mod conformance;
mod costs;
mod event_bus;
mod fifo;
mod leases;
mod sink;
mod start;
