//! A handler whose message is an `Option` takes tombstones, and no other handler does.
#![allow(unused_qualifications, reason = "an `Option` can be written with a path")]

use idem::prelude::*;
use sqlx::SqliteConnection;

mod ours {
    pub(crate) type Options = u64;
}

#[idempotent(key = position)]
async fn takes(row: Option<String>, _: &mut SqliteConnection) -> Result<(), String> {
    row.map_or(Ok(()), Err)
}

#[idempotent(key = position)]
async fn takes_by_its_path(_: std::option::Option<u64>, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

#[idempotent(key = position)]
async fn takes_none(_: String, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

#[idempotent(key = position)]
async fn has_an_option_inside(_: Vec<Option<u64>>, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

#[idempotent(key = position)]
async fn has_a_like_name(_: ours::Options, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

macro_rules! handler {
    ($name:ident, $message:ty) => {
        #[idempotent(key = position)]
        async fn $name(_: $message, _: &mut SqliteConnection) -> Result<(), BoxError> {
            Ok(())
        }
    };
}

handler!(from_a_macro, Option<u64>);

const fn takes_tombstones<H: Handler>() -> bool {
    H::TOMBSTONES
}

#[test]
fn an_option_takes_tombstones() {
    assert!(takes_tombstones::<takes>());
    assert!(takes_tombstones::<takes_by_its_path>());
    assert!(takes_tombstones::<from_a_macro>());
}

#[test]
fn anything_else_takes_none() {
    assert!(!takes_tombstones::<takes_none>());
    assert!(!takes_tombstones::<has_an_option_inside>());
    assert!(!takes_tombstones::<has_a_like_name>());
}
