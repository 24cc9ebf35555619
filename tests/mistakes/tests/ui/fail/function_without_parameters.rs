use idem::prelude::*;

struct Event {
    id: u64,
}

#[idempotent(key = id)]
async fn handler() -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
