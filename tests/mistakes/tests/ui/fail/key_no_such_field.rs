use idem::prelude::*;
use sqlx::PgConnection;

struct Event {
    event_id: u64,
}

#[idempotent(key = "event_i")]
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
