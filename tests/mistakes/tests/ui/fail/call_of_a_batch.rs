use idem::prelude::*;
use sqlx::PgConnection;

#[derive(serde::Deserialize)]
struct Event {
    id: u64,
}

#[external(key_life = "24h")]
async fn charge(_: &Event, _: OutboundKey) -> Result<u64, CallError> {
    Ok(7)
}

#[idempotent(key = id, call = charge)]
async fn handler(_: Batch<Event>, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
