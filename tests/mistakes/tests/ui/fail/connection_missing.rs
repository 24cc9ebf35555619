use idem::prelude::*;

struct Event {
    id: u64,
}

#[idempotent(key = id)]
async fn handler(_: Event) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
