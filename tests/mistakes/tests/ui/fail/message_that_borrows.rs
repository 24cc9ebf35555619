use idem::prelude::*;
use sqlx::PgConnection;

struct Event<'a> {
    id: &'a str,
}

#[idempotent(key = id)]
async fn handler(_: Event<'_>, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
