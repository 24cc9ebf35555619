//! The relay suite over SQLite.

#[path = "worlds/sqlite.rs"]
mod world;

idem_conformance::relay_suite!(world::SqliteWorld);
