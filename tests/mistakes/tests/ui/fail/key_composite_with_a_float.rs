use idem::prelude::*;
use sqlx::PgConnection;

struct Event {
    id: u64,
    amount: f64,
}

#[idempotent(key = (id, "amount"))]
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
