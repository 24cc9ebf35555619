use idem::prelude::*;
use sqlx::PgConnection;

struct Event {
    id: u64,
}

#[idempotent(key = "", name = "", colour = "red")]
fn handler(_: &Event, _: &str, _: PgConnection) {
    drop(());
}

fn main() {}
