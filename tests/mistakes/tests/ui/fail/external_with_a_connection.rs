use sqlx::PgConnection;
use idem::prelude::*;

struct Event {
    id: u64,
}

#[external(once)]
async fn charge(event: &Event, _: &mut PgConnection) -> Result<u64, CallError> {
    Ok(event.id)
}

fn main() {}
