use idem::prelude::*;
use sqlx::PgConnection;

#[derive(serde::Deserialize)]
struct Event {
    id: u64,
}

#[idempotent(key = id)]
async fn handler(_: Event, _: Called<u64>, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
