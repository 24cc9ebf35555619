use idem::KeyPart;

#[derive(KeyPart)]
struct Amount(f64);

fn main() {}
