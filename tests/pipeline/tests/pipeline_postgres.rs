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

idem_pipeline::pipeline_suite!(world::PostgresWorld);

mod inbox {
    idem_pipeline::pipeline_suite!(super::world::PostgresWorld, inbox);
}

mod batch {
    idem_pipeline::pipeline_suite!(super::world::PostgresWorld, batch);
}

mod inbox_batch {
    idem_pipeline::pipeline_suite!(super::world::PostgresWorld, inbox batch);
}

mod natural {
    idem_pipeline::pipeline_suite!(super::world::PostgresWorld, natural);
}

mod natural_batch {
    idem_pipeline::pipeline_suite!(super::world::PostgresWorld, natural batch);
}
