//! The store suite over PostgreSQL.

#[path = "worlds/postgres.rs"]
mod world;

idem_test::store_suite!(world::PostgresWorld);
