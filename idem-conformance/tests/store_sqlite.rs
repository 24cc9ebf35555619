//! The store suite over SQLite.

#[path = "worlds/sqlite.rs"]
mod world;

idem_conformance::store_suite!(world::SqliteWorld);
