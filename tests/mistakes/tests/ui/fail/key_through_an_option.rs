use idem::prelude::*;
use sqlx::PgConnection;

struct Order {
    id: u64,
}

struct Event {
    order: Option<Order>,
}

#[idempotent(key = "order.id")]
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
