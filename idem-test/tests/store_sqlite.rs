//! The store suite over SQLite.

#[path = "worlds/sqlite.rs"]
mod world;

idem_test::store_suite!(world::SqliteWorld);
