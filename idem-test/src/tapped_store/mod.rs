//! A store that wraps another one, except where its tap stops it or makes it fail. It can write what it does into a trace.

mod calling;
mod consumers;
mod doing;
mod inbox_rows;
mod outbox_rows;
mod over;
mod relay;
mod taking;
mod tapped;
mod through;
mod transactions;

pub use over::Over;
pub use tapped::{StoreTap, TappedStore, TappedTxn};
