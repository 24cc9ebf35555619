//! The pipeline suite over SQLite.

#[path = "worlds/sqlite.rs"]
mod world;

idem_conformance::pipeline_suite!(world::SqliteWorld);

mod inbox {
    idem_conformance::pipeline_suite!(super::world::SqliteWorld, inbox);
}

mod batch {
    idem_conformance::pipeline_suite!(super::world::SqliteWorld, batch);
}

mod inbox_batch {
    idem_conformance::pipeline_suite!(super::world::SqliteWorld, inbox batch);
}

mod natural {
    idem_conformance::pipeline_suite!(super::world::SqliteWorld, natural);
}

mod natural_batch {
    idem_conformance::pipeline_suite!(super::world::SqliteWorld, natural batch);
}
