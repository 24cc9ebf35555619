use idem::prelude::*;
use sqlx::PgConnection;

struct Event {
    id: u64,
}

#[idempotent(key = id)]
async fn handler(_: &mut PgConnection, _: Event) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
