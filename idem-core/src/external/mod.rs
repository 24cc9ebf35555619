//! Calls to other systems, which are made before a handler runs and outside of any transaction.
//!
//! | file | contents |
//! |---|---|
//! | `call` | the trait of a call, what the other system knows of one, and how one failed |
//! | `outbound_key` | the key under which the other system knows a call |
//! | `called` | the answer, as a parameter of the handler |
//! | `erased` | a call without its types, and how a test runs it |

mod call;
mod called;
mod erased;
mod outbound_key;

pub(crate) use call::Doubt;
pub use call::{CallError, External, Found};
pub use called::{Called, CalledBy};
pub use erased::ErasedCall;
pub(crate) use erased::{AT_MOST_ONCE, CallLimits, CallReply, Calling, without_kind};
pub use outbound_key::OutboundKey;
