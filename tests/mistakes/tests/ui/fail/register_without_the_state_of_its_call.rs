use idem::Source;
use idem::prelude::*;
use sqlx::PgConnection;

#[derive(serde::Deserialize)]
struct Event {
    id: u64,
}

#[derive(Clone)]
struct Bank;

#[external(key_life = "24h")]
async fn charge(_: &Event, _: OutboundKey, _: State<Bank>) -> Result<u64, CallError> {
    Ok(7)
}

#[idempotent(key = id, call = charge)]
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn register(store: Postgres, source: impl Source) {
    let _ = Worker::new("billing", store, source).handler::<handler>();
}

fn main() {}
