use idem::prelude::*;
use idem::{Key, KeyPart};
use sqlx::PgConnection;

// case: key_composite_with_a_float
struct Event {
    id: u64,
    amount: f64,
}

#[idempotent(key = (id, "amount"))]
//~                     ^^^^^^^^ `f64` cannot be the key of a message
//~ label: this field is the key
//~ note: a key is a string, an integer, a `Uuid`, a `Ulid` or bytes
//~ note: floats and times may differ between deliveries of one message, and an `Option` must be decided, not guessed
//~ note: for a newtype of one of these, `#[derive(KeyPart)]`
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_part_of_a_float
#[derive(KeyPart)]
struct Amount(f64);
//~           ^^^ `f64` cannot be the key of a message
//~ label: this field is the key
//~ note: a key is a string, an integer, a `Uuid`, a `Ulid` or bytes
//~ note: floats and times may differ between deliveries of one message, and an `Option` must be decided, not guessed
//~ note: for a newtype of one of these, `#[derive(KeyPart)]`

// case: key_part_of_an_enum
    #[derive(KeyPart)]
    enum Region {
//~ ^^^^ an enum is not one value: implement `KeyPart`, and write a text that stays the same when variants are added or renamed
        Europe,
        America,
    }

fn key() {
    let _ = (Key::of(&Region::Europe), Key::of(&Region::America));
}

// case: key_part_of_nothing
#[derive(KeyPart)]
struct Ping;
//~    ^^^^ there is nothing to write: a key part is a newtype, with one field

fn key() {
    let _ = Key::of(&Ping);
}

// case: key_part_of_several_fields
#[derive(KeyPart)]
struct Line {
    order: u64,
    number: u32,
//~ ^^^^^^^^^^^ a key part is one value: derive it for a newtype; for a key of several fields, name them where it is used, `#[idempotent(key = ("order", "line"))]`
}

fn key() {
    let _ = Key::of(&Line { order: 7, number: 1 });
}

// case: key_part_with_a_wrong_attribute
#[derive(KeyPart)]
#[key_part(rename = "id")]
//~        ^^^^^^ expected `#[key_part(crate = path)]`
struct Id(u64);

// case: key_that_is_a_float
struct Event {
    id: f64,
}

#[idempotent(key = "id")]
//~                ^^^^ `f64` cannot be the key of a message
//~ label: this field is the key
//~ note: a key is a string, an integer, a `Uuid`, a `Ulid` or bytes
//~ note: floats and times may differ between deliveries of one message, and an `Option` must be decided, not guessed
//~ note: for a newtype of one of these, `#[derive(KeyPart)]`
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_that_is_a_time
struct Event {
    id: std::time::SystemTime,
}

#[idempotent(key = "id")]
//~                ^^^^ `SystemTime` cannot be the key of a message
//~ label: this field is the key
//~ note: a key is a string, an integer, a `Uuid`, a `Ulid` or bytes
//~ note: floats and times may differ between deliveries of one message, and an `Option` must be decided, not guessed
//~ note: for a newtype of one of these, `#[derive(KeyPart)]`
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_that_is_an_option
struct Event {
    id: Option<u64>,
}

#[idempotent(key = "id")]
//~                ^^^^ `Option<u64>` cannot be the key of a message
//~ label: this field is the key
//~ note: a key is a string, an integer, a `Uuid`, a `Ulid` or bytes
//~ note: floats and times may differ between deliveries of one message, and an `Option` must be decided, not guessed
//~ note: for a newtype of one of these, `#[derive(KeyPart)]`
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}
