use idem::prelude::*;

struct Event {
    id: u64,
}

#[external(timeout = "20s")]
async fn charge(event: &Event, _: OutboundKey) -> Result<u64, CallError> {
    Ok(event.id)
}

fn main() {}
