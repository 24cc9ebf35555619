use idem::prelude::*;

#[idempotent(key = id)]
struct Event {
    id: u64,
}

fn main() {}
