//! The relay suite over SQLite.

#[path = "worlds/sqlite.rs"]
mod world;

idem_test::relay_suite!(world::SqliteWorld);
