use idem::prelude::*;

struct Event {
    id: u64,
}

#[external(key_life = "24")]
async fn charge(event: &Event, _: OutboundKey) -> Result<u64, CallError> {
    Ok(event.id)
}

fn main() {}
