use idem::prelude::*;
use sqlx::PgConnection;

struct Event {
    id: Option<u64>,
}

#[idempotent(key = "id")]
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
