//! The pipeline suite over SQLite.

#[path = "../../../idem-conformance/tests/worlds/sqlite.rs"]
mod world;

idem_pipeline::pipeline_suite!(world::SqliteWorld);

mod inbox {
    idem_pipeline::pipeline_suite!(super::world::SqliteWorld, inbox);
}

mod batch {
    idem_pipeline::pipeline_suite!(super::world::SqliteWorld, batch);
}

mod inbox_batch {
    idem_pipeline::pipeline_suite!(super::world::SqliteWorld, inbox batch);
}

mod natural {
    idem_pipeline::pipeline_suite!(super::world::SqliteWorld, natural);
}

mod natural_batch {
    idem_pipeline::pipeline_suite!(super::world::SqliteWorld, natural batch);
}
