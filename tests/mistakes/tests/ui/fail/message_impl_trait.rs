use idem::prelude::*;
use sqlx::PgConnection;

#[idempotent(key = id)]
async fn handler(_: impl Send, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
