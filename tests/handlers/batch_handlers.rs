//! A handler that takes a `Batch` is called with all new messages at once.
#![allow(unused_qualifications, reason = "a `Batch` can be written with a path")]

use idem::handler::Input;
use idem::prelude::*;
use sqlx::SqliteConnection;

mod ours {
    pub(crate) type Batches = Vec<u64>;
}

#[idempotent(key = "0")]
async fn takes_many(_: Batch<(String, u64)>, _: State<u64>, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

#[idempotent(key = position)]
async fn takes_many_by_its_path(_: idem::Batch<u64>, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

#[idempotent(key = position)]
async fn takes_one(_: Vec<u64>, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

#[idempotent(key = position)]
async fn has_a_like_name(_: ours::Batches, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

const fn takes_batches<H: Handler>() -> bool {
    <H::Input as Input<H::Message>>::TAKES_BATCH
}

#[test]
fn a_batch_takes_batches_and_nothing_else_does() {
    assert!(takes_batches::<takes_many>() && takes_batches::<takes_many_by_its_path>());
    assert!(!takes_batches::<takes_one>() && !takes_batches::<has_a_like_name>());
}
