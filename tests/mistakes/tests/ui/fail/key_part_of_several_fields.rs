use idem::{Key, KeyPart};

#[derive(KeyPart)]
struct Line {
    order: u64,
    number: u32,
}

fn main() {
    let _ = Key::of(&Line { order: 7, number: 1 });
}
