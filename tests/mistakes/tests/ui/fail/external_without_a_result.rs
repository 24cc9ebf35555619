use idem::prelude::*;

struct Event {
    id: u64,
}

#[external(once)]
async fn charge(event: &Event) -> u64 {
    event.id
}

fn main() {}
