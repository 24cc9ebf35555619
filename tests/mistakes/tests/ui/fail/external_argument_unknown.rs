use idem::prelude::*;

struct Event {
    id: u64,
}

#[external(once, retries = 3)]
async fn charge(event: &Event) -> Result<u64, CallError> {
    Ok(event.id)
}

fn main() {}
