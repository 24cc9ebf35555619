use idem::prelude::*;
use sqlx::PgConnection;

struct Event {
    id: u64,
}

#[idempotent(natural)]
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
