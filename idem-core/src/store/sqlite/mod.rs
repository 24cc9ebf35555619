//! The SQLite store.
//!
//! | file | contents |
//! |---|---|
//! | `handle` | what all the files share |
//! | `options` | how a store is opened |
//! | `migrate` | the tables |
//! | `file` | the single writer of a file, its queue, and what a handler can leave on its connection |
//! | `watch` | hooks that track a connection's transactions |
//! | `transactions`, `txn`, `claims` | begin, claim, guard, commit, rollback |
//! | `inbox_rows`, `inbox_sql` | inbox rows, also in their call phase |
//! | `outbox_rows`, `outbox_sql` | the outbox, for handlers, relays and operators |
//! | `replies` | the replies to requests |
//! | `consumers`, `consumers_sql` | handlers, gauges, dead letters |
//! | `own` | claims and staged messages in transactions of the application's own |
//! | `prune` | removing old claims |
//! | `sql`, `answer` | texts, values, errors |
//! | `plans` | tests of query plans |

mod answer;
mod claims;
mod consumers;
mod consumers_sql;
mod file;
mod handle;
mod inbox_rows;
mod inbox_sql;
mod migrate;
mod options;
mod outbox_rows;
mod outbox_sql;
mod own;
mod prune;
mod replies;
mod sql;
mod transactions;
mod txn;
mod watch;

#[cfg(test)]
mod plans_tests;

use sqlx::sqlite::SqliteConnection;

use super::{HasConnection, Migration};
use crate::Error;

pub use handle::Sqlite;
pub use options::SqliteOptions;
pub use txn::Txn;

impl Sqlite {
    /// Opens the database file of this URL (`sqlite:orders.db`) or path with the default options, and creates it if it
    /// does not exist. See [`SqliteOptions::connect`].
    ///
    /// # Errors
    /// As [`SqliteOptions::connect`].
    pub async fn connect(url: impl AsRef<str>) -> Result<Self, Error> {
        Self::options(url).connect().await
    }

    /// Returns the options for the database file of this URL (`sqlite:orders.db`) or path.
    pub fn options(url: impl AsRef<str>) -> SqliteOptions {
        SqliteOptions::new(url.as_ref())
    }

    /// Returns the SQL that [`connect`](SqliteOptions::connect) runs, for those who run it by hand and connect with
    /// [`verify_only`](SqliteOptions::verify_only).
    ///
    /// ```
    /// for migration in idem_core::Sqlite::migrations() {
    ///     println!("-- {}\n{}", migration.name, migration.sql);
    /// }
    /// ```
    pub fn migrations() -> &'static [Migration] {
        migrate::MIGRATIONS
    }
}

impl HasConnection<SqliteConnection> for Sqlite {
    fn connection(txn: &mut Txn) -> &mut SqliteConnection {
        txn.lend()
    }
}
