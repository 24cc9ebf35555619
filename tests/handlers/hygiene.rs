//! A module in which every name that the expansion could use is something else.

#![allow(non_camel_case_types, non_upper_case_globals, non_snake_case, dead_code, clippy::missing_const_for_fn)]

use ::idem::idempotent;

struct Result;
struct Option;
struct String;
struct Box;
struct Handler;
struct Key;
struct Delivery;
struct str;
const tx: u8 = 0;
const message: u8 = 0;
const delivery: u8 = 0;
const params: u8 = 0;
fn Ok() {}
fn Err() {}
fn Some() {}
fn None() {}
fn finish() {}
fn header() {}
mod core {}
mod std {}
mod idem {}

struct Event {
    id: u64,
    inner: (u64,),
}

#[idempotent(key = ("id", header("ce-id"), inner.0, message_id), event = "e", fingerprint = print)]
async fn handler(
    event: Event,
    state: ::idem::State<u64>,
    connection: &mut ::sqlx::SqliteConnection,
) -> ::core::result::Result<(), ::idem::BoxError> {
    let _ = (event, state, connection);
    ::core::result::Result::Ok(())
}

fn print(of: &::idem::Delivery) -> ::idem::Fingerprint {
    ::idem::Fingerprint::of(of.payload())
}

/// A handler with the name of a local variable that many macros use.
#[idempotent(key = id)]
async fn input(_: Event, _: &mut ::sqlx::SqliteConnection) -> ::core::result::Result<(), ::idem::BoxError> {
    ::core::result::Result::Ok(())
}

#[test]
fn no_name_of_the_user_is_in_the_way() {
    assert_eq!(<handler as ::idem::Handler>::NAME, "handler");
    assert_eq!(<input as ::idem::Handler>::NAME, "input");
    let of = ::idem::Delivery::new("orders", "{}");
    assert!(<handler as ::idem::Handler>::key(&Event { id: 7, inner: (8,) }, &of).is_err());
}
