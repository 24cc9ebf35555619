//! The pipeline suite over PostgreSQL.

#[path = "worlds/careless.rs"]
mod careless;
#[path = "postgres/ended.rs"]
mod ended;
#[path = "postgres/outdated.rs"]
mod outdated;
#[path = "postgres/tenants.rs"]
mod tenants;
#[path = "../../../idem-conformance/tests/worlds/postgres.rs"]
mod world;

idem_pipeline::pipeline_suite!(crate::world::PostgresWorld, every mode);
