use idem::prelude::*;

struct Event {
    id: u64,
}

#[external(once, ask_after = "2m")]
async fn charge(event: &Event) -> Result<u64, CallError> {
    Ok(event.id)
}

fn main() {}
