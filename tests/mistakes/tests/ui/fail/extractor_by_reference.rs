use idem::prelude::*;
use sqlx::PgConnection;

struct Event {
    id: u64,
}

#[idempotent(key = id)]
async fn handler(_: Event, _: &Headers, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
