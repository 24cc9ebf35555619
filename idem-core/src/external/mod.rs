//! Calls to other systems, which are made before a handler runs and outside of any transaction.
//!
//! | file | contents |
//! |---|---|
//! | `call` | the trait of a call, and what the other system knows of one |
//! | `outbound_key` | the key under which the other system knows a call |
//! | `error` | how a call failed |
//! | `called` | the answer, as a parameter of the handler |
//! | `erased` | a call without its types |
//! | `tapped` | a call that a test runs |

mod call;
mod called;
mod erased;
mod error;
mod outbound_key;
mod tapped;

pub use call::{External, Found};
pub use called::{Called, CalledBy};
pub use erased::ErasedCall;
pub(crate) use erased::{AT_MOST_ONCE, CallLimits, CallReply, Calling, without_kind};
pub use error::CallError;
pub(crate) use error::Doubt;
pub use outbound_key::OutboundKey;
pub use tapped::CallTap;
