use idem::prelude::*;

struct Event {
    id: u64,
}

#[external(once, key_life = "24h")]
async fn charge(event: &Event, _: OutboundKey) -> Result<u64, CallError> {
    Ok(event.id)
}

fn main() {}
