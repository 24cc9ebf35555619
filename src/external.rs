//! Calls to other systems, such as a payment provider: the types that a function with [`#[external]`](macro@crate::external)
//! takes and returns.

pub use idem_core::store::Resolution;
pub use idem_core::{CallError, Called, CalledBy, External, Found, OutboundKey};
