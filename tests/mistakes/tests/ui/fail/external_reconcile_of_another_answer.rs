use idem::prelude::*;

struct Event {
    id: u64,
}

#[external(key_life = "24h", reconcile = find)]
async fn charge(event: &Event, _: OutboundKey) -> Result<u64, CallError> {
    Ok(event.id)
}

async fn find(_: &Event, _: OutboundKey) -> Result<Found<String>, BoxError> {
    Ok(Found::Unknown)
}

fn main() {}
