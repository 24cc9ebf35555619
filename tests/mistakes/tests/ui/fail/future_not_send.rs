use std::rc::Rc;

use idem::prelude::*;
use sqlx::PgConnection;

struct Event {
    id: u64,
}

#[idempotent(key = id)]
async fn handler(event: Event, tx: &mut PgConnection) -> Result<(), BoxError> {
    let shared = Rc::new(event.id);
    sqlx::query("SELECT 1").execute(tx).await?;
    drop(shared);
    Ok(())
}

fn main() {}
