//! The outbox: messages that a transaction stages, and that a relay publishes after its commit.
//!
//! | file | contents |
//! |---|---|
//! | `outgoing` | a message that is to be published |
//! | `staged` | the same with its id, as a relay reads it |
//! | `sink` | the interface to brokers, to which a relay publishes |

mod outgoing;
mod sink;
mod staged;

pub use outgoing::Outgoing;
pub use sink::{Sink, SinkError};
pub use staged::StagedMessage;
