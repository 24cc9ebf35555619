use idem::Fingerprint;
use idem::prelude::*;
use sqlx::PgConnection;

struct Event {
    id: u64,
}

fn unchecked(_: &Delivery) -> Fingerprint {
    Fingerprint::none()
}

#[idempotent(key = id, fingerprint = unchecked, natural)]
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
