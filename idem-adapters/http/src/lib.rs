//! HTTP requests with an `Idempotency-Key`: each runs once, and its repeats get its reply.
//!
//! [`Requests`] is a layer around the routes of a service. It claims the key of a request in the transaction in which the handler
//! writes, and commits both together with the reply. So a crash at any point leaves all of them or none, and the client repeats
//! its request until it has an answer.
//!
//! | file | contents |
//! |---|---|
//! | `requests` | the options |
//! | `layer` | the way of a request |
//! | `key`, `body` | the key of a request, its body and its fingerprint |
//! | `reply` | the reply: what is kept of it, and how it is sent again |
//! | `lend` | the transaction, lent to the handler |
//! | `problem` | the answers of the layer itself |
//! | `extract` | the extractors of axum |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod body;
#[cfg(feature = "axum")]
mod extract;
mod key;
mod layer;
mod lend;
mod problem;
mod reply;
mod requests;

#[cfg(feature = "axum")]
pub use extract::Rejected;
pub use layer::{RequestsLayer, RequestsService};
pub use lend::{Outbox, Tx, TxError};
pub use reply::Reply;
pub use requests::{Requests, Unscoped};
