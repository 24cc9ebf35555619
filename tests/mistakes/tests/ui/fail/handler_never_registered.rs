#![deny(dead_code)]

use idem::prelude::*;
use sqlx::PgConnection;

#[derive(Debug)]
pub struct Event {
    pub id: u64,
}

#[idempotent(key = id)]
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
