use idem::prelude::*;

struct Event {
    id: u64,
}

#[derive(Clone)]
struct Bank;

#[external(key_life = "24h")]
async fn charge(event: &Event, _: State<Bank>) -> Result<u64, CallError> {
    Ok(event.id)
}

fn main() {}
