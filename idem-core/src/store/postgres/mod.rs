//! The PostgreSQL store, for PostgreSQL 15 and newer.
//!
//! | file | contents |
//! |---|---|
//! | `handle` | what all the files share: the pool and the name of the schema |
//! | `options` | how a store is opened |
//! | `check`, `migrate`, `tables` | settings and tables that would lose messages |
//! | `pool`, `connection` | the two pools of connections, how new ones are opened, and a connection in use |
//! | `login`, `session`, `limits` | logins, session settings, time limits |
//! | `answer` | the meaning of the server's errors |
//! | `transactions`, `claims_sql`, `txn`, `begin`, `commit`, `rollback` | transactions: begin, claim, guard and commit, roll back, and how one ended |
//! | `state` | removing a handler's state from a session; what it is set to in each transaction behind a pooler |
//! | `inbox_rows`, `inbox_sql`, `rows` | inbox rows, also in their call phase |
//! | `outbox_rows`, `outbox_sql` | the outbox, for handlers, relays and operators |
//! | `replies` | the replies to requests |
//! | `consumers`, `consumers_sql` | handlers, gauges, dead letters |
//! | `writes`, `local_sql` | the messages that COMMIT writes |
//! | `own` | claims and staged messages in transactions of the application's own |
//! | `prune` | removing old claims |
//! | `quote` | names and values in the text of statements |
//! | `plans` | tests of query plans |

mod answer;
mod begin;
mod check;
mod claims_sql;
mod commit;
mod connection;
mod consumers;
mod consumers_sql;
mod handle;
mod inbox_rows;
mod inbox_sql;
mod limits;
mod local_sql;
mod login;
mod migrate;
mod options;
mod outbox_rows;
mod outbox_sql;
mod own;
#[cfg(test)]
mod plans_tests;
mod pool;
mod prune;
mod quote;
mod replies;
mod rollback;
mod rows;
mod session;
mod state;
mod tables;
mod transactions;
mod txn;
mod writes;

use sqlx::PgConnection;

use crate::Error;

use super::{HasConnection, Migration};

pub use begin::Isolation;
pub use handle::Postgres;
pub use options::PostgresOptions;
pub use txn::Txn;

impl Postgres {
    /// Connects with the default options; see [`PostgresOptions`].
    ///
    /// # Errors
    /// As [`PostgresOptions::connect`].
    pub async fn connect(url: impl AsRef<str>) -> Result<Self, Error> {
        Self::options(url).connect().await
    }

    /// Returns options to change before [`connect`](PostgresOptions::connect). The URL has the form
    /// `postgres://user:password@host:5432/database`; sqlx's parameters (`?sslmode=verify-full`) may follow.
    pub fn options(url: impl AsRef<str>) -> PostgresOptions {
        PostgresOptions::new(url.as_ref())
    }

    /// Returns the SQL that [`connect`](PostgresOptions::connect) runs, for a database in which the role of the workers
    /// may not create tables: print it, and run it in a transaction of a role that may. The comment at the top
    /// of the SQL shows the command.
    ///
    /// ```
    /// for migration in idem_core::Postgres::migrations() {
    ///     println!("-- {}\n{}", migration.name, migration.sql);
    /// }
    /// ```
    pub fn migrations() -> &'static [Migration] {
        migrate::MIGRATIONS
    }
}

impl HasConnection<PgConnection> for Postgres {
    fn connection(txn: &mut Txn) -> &mut PgConnection {
        txn.connection()
    }
}
