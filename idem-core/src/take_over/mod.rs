//! Takes messages over without processing them: scheduled, stored, dead, or already known.
//!
//! | file | contents |
//! |---|---|
//! | `classify` | classifies a message by the claim of its key |
//! | `claim` | the claim of a first delivery |
//! | `entry` | what the database takes over, and what becomes of it |
//! | `many` | the claims and rows of messages, in one transaction |
//! | `fan_out` | one message for several handlers, in one transaction |
//! | `row` | the row of a message that has a key |
//! | `dead` | the row of a message that has none |
//! | `early_commit` | the dead letter of a message whose claim its handler has committed |
//! | `committed` | the commit of a transaction in which no handler ran |

mod claim;
mod classify;
mod committed;
mod dead;
mod early_commit;
mod entry;
mod fan_out;
mod many;
mod row;

pub(crate) use classify::Classified;
pub(crate) use committed::committed;
pub(crate) use entry::Taken;
pub(crate) use fan_out::Shares;
pub(crate) use many::Known;
