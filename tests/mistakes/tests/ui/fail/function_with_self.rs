use idem::prelude::*;
use sqlx::PgConnection;

struct Event {
    id: u64,
}

struct Handlers;

impl Handlers {
    #[idempotent(key = id)]
    async fn handler(&self, event: Event, _: &mut PgConnection) -> Result<(), BoxError> {
        Ok(())
    }
}

fn main() {}
