use idem::prelude::*;

#[external(once)]
struct Charge;

fn main() {}
