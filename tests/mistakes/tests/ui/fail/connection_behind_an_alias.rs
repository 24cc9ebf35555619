use idem::prelude::*;
use sqlx::PgConnection;

struct Event {
    id: u64,
}

type Tx<'a> = &'a mut PgConnection;

#[idempotent(key = id)]
async fn handler(_: Event, _: Tx<'_>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
