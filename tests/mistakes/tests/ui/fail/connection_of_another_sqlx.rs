use idem::Source;
use idem::prelude::*;

/// Stands in for sqlx 0.8 beside the 0.9 of idem: its types have the same names and are others.
mod sqlx {
    pub struct PgConnection;
}

#[derive(serde::Deserialize)]
struct Event {
    id: u64,
}

#[idempotent(key = id)]
async fn handler(_: Event, _: &mut sqlx::PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn register(store: Postgres, source: impl Source) {
    let _ = Worker::new("billing", store, source).handler::<handler>();
}

fn main() {}
