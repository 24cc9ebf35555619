use idem::prelude::*;
use sqlx::PgConnection;

struct Event {
    id: u64,
}

struct Tenant;

#[idempotent(key = id)]
async fn handler(_: Event, _: Headers, _: Tenant, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
