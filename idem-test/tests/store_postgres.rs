//! The suite for stores, over PostgreSQL.

#[path = "worlds/postgres.rs"]
mod world;

idem_test::store_suite!(world::PostgresWorld);
