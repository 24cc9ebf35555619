use idem::prelude::*;
use sqlx::PgConnection;

struct Event {
    id: u64,
}

#[idempotent(key = id)]
async fn handler(_: Event, _: &mut PgConnection) -> u32 {
    7
}

fn main() {}
