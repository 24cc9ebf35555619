use idem::prelude::*;
use sqlx::PgConnection;

struct Event {
    id: u64,
}

#[idempotent(key = id)]
async fn handler<T>(_: Event, _: State<T>, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
