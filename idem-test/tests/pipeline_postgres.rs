//! The suite for the pipeline, over PostgreSQL.

#[path = "worlds/postgres.rs"]
mod world;

idem_test::pipeline_suite!(world::PostgresWorld);
