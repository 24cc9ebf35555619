//! The store suite over PostgreSQL.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "postgres/isolation.rs"]
mod isolation;
#[path = "worlds/postgres.rs"]
mod world;

idem_conformance::store_suite!(world::PostgresWorld);
