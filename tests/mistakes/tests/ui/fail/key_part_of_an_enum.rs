use idem::{Key, KeyPart};

#[derive(KeyPart)]
enum Region {
    Europe,
    America,
}

fn main() {
    let _ = (Key::of(&Region::Europe), Key::of(&Region::America));
}
