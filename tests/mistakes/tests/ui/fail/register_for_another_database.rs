use idem::Source;
use idem::prelude::*;
use sqlx::SqliteConnection;

#[derive(serde::Deserialize)]
struct Event {
    id: u64,
}

#[idempotent(key = id)]
async fn handler(_: Event, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

fn register(store: Postgres, source: impl Source) {
    let _ = Worker::new("billing", store, source).handler::<handler>();
}

fn main() {}
