//! The PostgreSQL store, for PostgreSQL 13 and newer.
//!
//! | file | what |
//! |---|---|
//! | `options` | how to reach the database |
//! | `check` | settings that would lose messages |
//! | `migrate` | idem's own tables |
//! | `lanes`, `lane` | connections, and one in use |
//! | `ready`, `room`, `session`, `limits` | what is idle or new, how many there are, what their sessions are like, and for how long one is waited for |
//! | `answer` | what the server's errors mean |
//! | `txn`, `begin`, `guard`, `commit` | transactions: begin, guard and commit, roll back |
//! | `fate` | what became of a transaction that was cut off |
//! | `register` | handlers as small integers |
//! | `claims` | claims |
//! | `inbox_rows`, `inbox_sql`, `rows` | inbox rows |
//! | `many` | claims and inbox rows of several messages at once |
//! | `operator` | list, replay, discard |
//! | `ping` | a sign of life |
//! | `prune` | old claims go |
//! | `sql`, `statement` | the statements with the schema's name in them |

mod answer;
mod begin;
mod check;
mod claims;
mod clean;
mod commit;
mod cure;
mod fate;
mod guard;
mod inbox_rows;
mod inbox_sql;
mod lane;
mod lanes;
mod limits;
mod many;
mod migrate;
mod operator;
mod options;
mod ping;
#[cfg(test)]
mod plans;
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
use tokio::sync::Semaphore;

use crate::Error;

use self::answer::About;

use super::{HasConnection, StoreError};

pub use options::PostgresOptions;
pub use txn::Txn;

/// The PostgreSQL store. Clones share their connections.
///
/// Its connections are its own, apart from any pool of the application: a handler that takes a second connection takes
/// it from the application's pool, and cannot starve the store.
#[derive(Clone)]
pub struct Postgres(Arc<Inner>);

struct Inner {
    statements: sql::Statements,
    lanes: lanes::Lanes,
    name: String,
    schema: String,
    connections: usize,
    retention: Duration,
    /// How many connections no worker has set aside.
    left: Arc<Semaphore>,
}

impl Postgres {
    /// Connects with the default options; see [`PostgresOptions`].
    ///
    /// # Errors
    /// As [`PostgresOptions::connect`].
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::options(url).connect().await
    }

    /// Options, to be changed before [`connect`](PostgresOptions::connect). The URL looks like
    /// `postgres://user:password@host:5432/database`; sqlx's parameters (`?sslmode=verify-full`) may follow.
    pub fn options(url: &str) -> PostgresOptions {
        PostgresOptions::new(url)
    }

    fn sql(&self) -> &sql::Statements {
        &self.0.statements
    }

    fn lanes(&self) -> &lanes::Lanes {
        &self.0.lanes
    }

    fn schema(&self) -> &str {
        &self.0.schema
    }

    /// One statement that is committed by itself.
    async fn ask(&self, query: Query<'_, Pg, PgArguments>) -> Result<Vec<PgRow>, StoreError> {
        self.ask_about(About::Nothing, query).await
    }

    async fn ask_about(&self, about: About, query: Query<'_, Pg, PgArguments>) -> Result<Vec<PgRow>, StoreError> {
        let mut lane = self.lanes().own().await?;
        let answer = lane.alone(query).await;
        lane.put_back();
        answer.map_err(|failure| failure.fault(about))
    }
}

/// Shows where the database is, without the password.
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
