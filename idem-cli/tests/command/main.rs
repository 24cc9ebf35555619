//! The command `idem`, run as people on call run it, on both databases.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod bad_input;
mod drill;
mod json;
mod roles;
mod shop;
mod world;
