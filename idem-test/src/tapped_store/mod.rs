//! A store that wraps another one, except where its tap stops it or makes it fail. It can write what it does into a trace.
//!
//! | files | contents |
//! |---|---|
//! | `tapped`, `over`, `through` | the store and its tap; its handlers; their parameters |
//! | `transactions`, `inbox_rows`, `outbox_rows`, `consumers`, `replies` | its methods, by trait |
//! | `doing`, `fetching`, `calling`, `relay` | for the trace: the writes of a transaction; rows; calls; relays |

mod calling;
mod consumers;
mod doing;
mod fetching;
mod inbox_rows;
mod outbox_rows;
mod over;
mod relay;
mod replies;
mod tapped;
mod through;
mod transactions;

pub use over::Over;
pub use tapped::{StoreTap, TappedStore, TappedTxn};
