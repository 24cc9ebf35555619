use idem::prelude::*;
use sqlx::PgConnection;

struct Event {
    id: u64,
}

#[idempotent(key = id)]
async fn handler(_: Event, _: &mut PgConnection) -> Result<u64, BoxError> {
    Ok(7)
}

fn main() {}
