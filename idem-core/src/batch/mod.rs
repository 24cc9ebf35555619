//! Batches: many deliveries in one transaction, each with a verdict of its own.
//!
//! | file | what |
//! |---|---|
//! | `collect` | what is there is taken together |
//! | `lane` | from deliveries to verdicts, and settling them |
//! | `item` | a message of a batch that can run, and what it came to |
//! | `together` | one transaction: claims, handlers, guard, commit |
//! | `round` | what such a transaction opens with, and comes to |
//! | `calls` | the calls of handlers in it |
//! | `blame` | whose failure the failure of a batch is |

mod blame;
mod calls;
mod collect;
mod item;
mod lane;
mod round;
mod together;

pub(crate) use collect::collect;
pub(crate) use item::Verdict;
