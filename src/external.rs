//! Calls to other systems, such as a payment provider: the attribute [`#[external]`](macro@external), and the types that a
//! function with it takes and returns.

pub use idem_core::store::Resolution;
pub use idem_core::{CallError, Called, CalledBy, External, Found, OutboundKey};
pub use idem_macros::external;
