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

#[derive(serde::Deserialize)]
struct Other {
    id: u64,
}

#[idempotent(key = id, call = charge)]
async fn handler(_: Other, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
