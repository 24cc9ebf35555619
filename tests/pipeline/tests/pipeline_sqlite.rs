//! The pipeline suite over SQLite.

#[path = "../../../idem-conformance/tests/worlds/sqlite.rs"]
mod world;

idem_pipeline::pipeline_suite!(crate::world::SqliteWorld, every mode);
