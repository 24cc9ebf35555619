use idem::prelude::*;

struct Event {
    id: u64,
}

#[external(key_life = "24h", reconcile = find)]
async fn charge(event: &Event, _: OutboundKey) -> Result<u64, CallError> {
    Ok(event.id)
}

async fn find(_: &Event) -> Result<Found<u64>, BoxError> {
    Ok(Found::Unknown)
}

fn main() {}
