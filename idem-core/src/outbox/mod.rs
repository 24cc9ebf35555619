//! The outbox: messages that a transaction stages, and that a relay publishes after its commit.
//!
//! | file | contents |
//! |---|---|
//! | `outgoing` | a message that is to be published |
//! | `handle` | the parameter with which a handler stages messages |
//! | `staged` | the same message with its id, as a relay reads it, and as a CloudEvent |
//! | `identity` | the ids of messages |
//! | `store_outbox` | the outbox of a store, for an application, and its dead letters, for an operator |
//! | `envelope` | the encoding of a message's facts in a row |
//! | `notifier` | wakes the relays of the same process |
//! | `unread` | outboxes that no relay looks at |
//! | `sink` | the interface to brokers, to which a relay publishes |
//! | `connection` | the connection that all calls of a sink share |

mod connection;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) mod envelope;
mod handle;
mod identity;
mod notifier;
mod outgoing;
mod sink;
mod staged;
mod store_outbox;
mod unread;

pub use connection::SinkConnection;
pub use handle::{Outbox, Staging};
pub use notifier::Notifier;
pub(crate) use outgoing::Ids;
pub use outgoing::Outgoing;
pub use sink::{Sink, SinkError};
pub use staged::StagedMessage;
pub(crate) use staged::rfc3339;
pub use store_outbox::StoreOutbox;

pub(crate) use identity::Origin;
pub(crate) use unread::Unread;
