use idem::prelude::*;

struct Event {
    id: u64,
}

#[external(once)]
fn charge(event: &Event) -> Result<u64, CallError> {
    Ok(event.id)
}

fn main() {}
