//! Tests specific to the PostgreSQL store. The suite in idem-conformance covers what all stores have in common.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "postgres_store/batches.rs"]
mod batches;
#[path = "postgres_store/connect.rs"]
mod connect;
#[path = "postgres_store/connections.rs"]
mod connections;
#[path = "postgres_store/credentials.rs"]
mod credentials;
#[path = "postgres_store/faults.rs"]
mod faults;
#[path = "postgres_store/guard.rs"]
mod guard;
#[path = "postgres_store/inbox.rs"]
mod inbox;
#[path = "postgres_store/isolation.rs"]
mod isolation;
#[path = "postgres_store/limits.rs"]
mod limits;
#[path = "postgres_store/outbox.rs"]
mod outbox;
#[path = "postgres_store/prepared.rs"]
mod prepared;
#[path = "postgres_store/proxy.rs"]
mod proxy;
#[path = "postgres_store/prune.rs"]
mod prune;
#[path = "postgres_store/refusals.rs"]
mod refusals;
#[path = "postgres_store/roles.rs"]
mod roles;
#[path = "postgres_store/round_trips.rs"]
mod round_trips;
#[path = "postgres_store/sessions.rs"]
mod sessions;
#[path = "postgres_store/txn_outcome.rs"]
mod txn_outcome;
#[path = "postgres_store/versions.rs"]
mod versions;
#[path = "postgres_store/views.rs"]
mod views;
#[path = "postgres_store/world.rs"]
mod world;
