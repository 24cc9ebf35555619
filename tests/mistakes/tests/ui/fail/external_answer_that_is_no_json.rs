use idem::prelude::*;

struct Event {
    id: u64,
}

struct Charge;

#[external(once)]
async fn charge(_: &Event) -> Result<Charge, CallError> {
    Ok(Charge)
}

fn main() {}
