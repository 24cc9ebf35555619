//! Parts that the stores for SQL databases share.
//!
//! | file | contents |
//! |---|---|
//! | `migration`, `ledger`, `tables` | the SQL that creates the tables, the versions that may use them, and their columns |
//! | `statements` | the statements that are alike in all databases |
//! | `stored` | decoding of inbox rows |
//! | `errors` | errors as the tables keep them |
//! | `clock` | the clock by which prune finds old claims |
//! | `number` | the number that a name gets |
//! | `names` | numbers of names that an application has used |
//! | `own` | what an application does in transactions of its own |

mod clock;
mod errors;
pub(crate) mod ledger;
mod migration;
#[cfg(feature = "postgres")]
mod names;
mod number;
mod own;
pub(crate) mod statements;
pub(crate) mod stored;
pub(crate) mod tables;

pub(crate) use clock::Clock;
pub(crate) use errors::{CRASHED, error_text, log_conflicts};
pub use migration::Migration;
#[cfg(feature = "postgres")]
pub(crate) use names::Names;
pub(crate) use number::{NUMBERS, number};
pub(crate) use own::{check_transaction, checked};
