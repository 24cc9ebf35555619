use idem::prelude::*;
use sqlx::PgConnection;

struct Event {
    id: u64,
}

fn length(of: &Delivery) -> usize {
    of.payload().len()
}

#[idempotent(key = id, fingerprint = length)]
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
