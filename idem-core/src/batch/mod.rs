//! Batches: many deliveries in one transaction, with a separate verdict for each.
//!
//! | file | contents |
//! |---|---|
//! | `collect` | takes all available items together |
//! | `deliver` | turns deliveries into verdicts, and settles them |
//! | `item` | a message of a batch that can run, and its verdict |
//! | `round` | one transaction: claims, handlers, guard, commit |
//! | `opening` | how such a transaction starts, and its result |
//! | `claims` | the claims of such a transaction |
//! | `natural` | the deliveries in it that have no claims |
//! | `calls` | the handler calls in it |
//! | `blame` | which message caused the failure of a batch |

mod blame;
mod calls;
mod claims;
mod collect;
mod deliver;
mod item;
mod natural;
mod opening;
mod round;

pub(crate) use collect::collect;
pub(crate) use item::Verdict;
