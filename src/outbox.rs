//! Messages that are staged in a transaction, and the relay that publishes them. See [the guide](crate::docs::outbox).

pub use idem_core::{Outbox, Outgoing, Relay, Staging, StoreOutbox};
