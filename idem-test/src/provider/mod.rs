//! A fake payment provider: it recognizes a request by its key, as long as it remembers the key. It is in memory, so that a
//! `Trial` can end a process between a charge and its answer.

mod client;
mod fault;
mod reply;
mod state;

pub use client::Provider;
pub use fault::Fault;
pub use reply::Reply;
pub use state::Charge;
