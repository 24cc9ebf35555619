use idem::prelude::*;
use sqlx::PgConnection;

mod events {
    pub struct Event {
        id: u64,
    }
}
use events::Event;

#[idempotent(key = "id")]
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
