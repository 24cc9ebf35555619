//! Messages that are staged in a transaction, and the relay that publishes them. See [the guide](crate::docs::outbox).

pub use idem_core::store::OwnClaim;
pub use idem_core::{LocalStaging, Outbox, Outgoing, Relay, Staging, StoreOutbox};
