//! The PostgreSQL store, for PostgreSQL 13 and newer.
//!
//! | file | contents |
//! |---|---|
//! | `options` | how a store is opened |
//! | `check` | settings that would lose messages |
//! | `migrate`, `cure` | the tables, and errors about them |
//! | `pool`, `connection` | the connection pool, and a connection in use |
//! | `ready`, `room`, `session`, `limits` | opening connections, the pool's slots, session settings, time limits |
//! | `answer` | the meaning of the server's errors |
//! | `transactions`, `txn`, `begin`, `guard`, `commit` | transactions: begin, guard and commit, roll back |
//! | `clean` | removing a handler's state from a session |
//! | `fate` | the fate of a transaction whose connection was lost |
//! | `register` | handlers as small integers |
//! | `claims` | claims |
//! | `inbox_rows`, `inbox_sql`, `rows` | inbox rows |
//! | `many` | claims and inbox rows of several messages at once |
//! | `operator` | stats, list, replay, discard |
//! | `ping` | the ping |
//! | `prune` | removing old claims |
//! | `sql`, `statement` | the statements, with the schema's name inserted |
//! | `plans` | tests of query plans |

mod answer;
mod begin;
mod check;
mod claims;
mod clean;
mod commit;
mod connection;
mod cure;
mod fate;
mod guard;
mod inbox_rows;
mod inbox_sql;
mod limits;
mod many;
mod migrate;
mod operator;
mod options;
mod ping;
#[cfg(test)]
mod plans;
mod pool;
mod prune;
mod ready;
mod register;
mod room;
mod rows;
mod session;
mod sql;
mod statement;
mod transactions;
mod txn;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres as Pg};

use crate::Error;
use crate::store::Shares;

use self::answer::About;

use super::{HasConnection, Migration, StoreError};

pub use options::PostgresOptions;
pub use txn::Txn;

/// The PostgreSQL store. Clones share their connections.
///
/// The store has its own connections, separate from any pool of the application: a handler that needs a second
/// connection takes it from the application's pool, and cannot starve the store.
#[derive(Clone)]
pub struct Postgres(Arc<Inner>);

struct Inner {
    statements: sql::Statements,
    pool: pool::Pool,
    name: String,
    schema: String,
    connections: usize,
    retention: Duration,
    shares: Shares,
}

impl Postgres {
    /// Connects with the default options; see [`PostgresOptions`].
    ///
    /// # Errors
    /// As [`PostgresOptions::connect`].
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::options(url).connect().await
    }

    /// Returns options to change before [`connect`](PostgresOptions::connect). The URL has the form
    /// `postgres://user:password@host:5432/database`; sqlx's parameters (`?sslmode=verify-full`) may follow.
    pub fn options(url: &str) -> PostgresOptions {
        PostgresOptions::new(url)
    }

    /// Returns the SQL that [`connect`](PostgresOptions::connect) runs, for a database in which the role of the workers
    /// may not create tables: print it, and run it in a transaction of a role that may, as its head says.
    ///
    /// ```
    /// for migration in idem_core::Postgres::migrations() {
    ///     println!("-- {}\n{}", migration.name, migration.sql);
    /// }
    /// ```
    pub fn migrations() -> &'static [Migration] {
        migrate::MIGRATIONS
    }

    fn sql(&self) -> &sql::Statements {
        &self.0.statements
    }

    fn pool(&self) -> &pool::Pool {
        &self.0.pool
    }

    fn schema(&self) -> &str {
        &self.0.schema
    }

    /// Runs one statement in autocommit.
    async fn ask(&self, query: Query<'_, Pg, PgArguments>) -> Result<Vec<PgRow>, StoreError> {
        self.ask_about(About::Nothing, query).await
    }

    async fn ask_about(&self, about: About, query: Query<'_, Pg, PgArguments>) -> Result<Vec<PgRow>, StoreError> {
        let mut connection = self.pool().own().await?;
        let answer = connection.alone(query).await;
        connection.put_back();
        answer.map_err(|failure| failure.fault(about))
    }
}

/// Shows the location of the database, without the password.
impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { name, schema, connections, retention, .. } = &*self.0;
        f.debug_struct("Postgres")
            .field("target", name)
            .field("schema", schema)
            .field("connections", connections)
            .field("retention", retention)
            .finish_non_exhaustive()
    }
}

impl HasConnection<PgConnection> for Postgres {
    fn connection(txn: &mut Txn) -> &mut PgConnection {
        txn.connection()
    }
}
