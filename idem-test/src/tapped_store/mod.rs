//! A store that wraps another one, except where its tap stops it or makes it fail.

mod call_rows;
mod claims;
mod inbox_rows;
mod operator;
mod outbox_rows;
mod over;
mod tapped;
mod transactions;

pub(crate) use over::Over;
pub(crate) use tapped::{StoreTap, TappedStore, TappedTxn};
