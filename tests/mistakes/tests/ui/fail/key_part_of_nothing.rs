use idem::{Key, KeyPart};

#[derive(KeyPart)]
struct Ping;

fn main() {
    let _ = Key::of(&Ping);
}
