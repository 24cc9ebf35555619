//! Batches: many deliveries in one transaction, with a separate verdict for each.
//!
//! | file | contents |
//! |---|---|
//! | `deliver` | turns deliveries into verdicts, and settles them |
//! | `item` | a message of a batch that can run, and its verdict |
//! | `round` | one transaction: how it starts, claims, handlers, guard, commit, and its result |
//! | `claims` | the claims of such a transaction |
//! | `blame` | which message caused the failure of a batch |

mod blame;
mod claims;
mod deliver;
mod item;
mod round;

pub(crate) use item::Verdict;
