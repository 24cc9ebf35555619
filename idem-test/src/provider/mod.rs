//! A fake payment provider: it recognizes a request by its key, as long as it remembers the key.

mod client;
mod fault;
mod reply;
mod state;

pub use client::Provider;
pub use fault::Fault;
pub use reply::Reply;
pub use state::Charge;
