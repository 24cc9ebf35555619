//! What a test reads of its tables, without a connection of its own.

use std::time::Duration;

use idem_core::{BoxError, Error, HasConnection, Store};

use super::trial::Trial;

/// How long a test may keep its transaction open.
const TIMEOUT: Duration = Duration::from_secs(60);

impl<S: Store> Trial<S> {
    /// Runs this in a transaction of the trial's database that is then rolled back, for at most a minute: to call the
    /// handler as a function, or to read its tables. On SQLite, the transaction is the file's writer.
    ///
    /// ```no_run
    /// # use idem_core::{BoxError, Sqlite};
    /// # use idem_test::Trial;
    /// # use sqlx::SqliteConnection;
    /// # async fn order_paid(_: i64, _: &mut SqliteConnection) -> Result<(), BoxError> { Ok(()) }
    /// # async fn test(trial: Trial<Sqlite>) -> Result<(), BoxError> {
    /// let balance: i64 = trial
    ///     .rolled_back(async |tx: &mut SqliteConnection| {
    ///         order_paid(25, tx).await?;
    ///         Ok(sqlx::query_scalar("SELECT balance FROM account").fetch_one(tx).await?)
    ///     })
    ///     .await?;
    /// # assert_eq!(balance, 25);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns the error of `work`, and fails if the database cannot be used.
    pub async fn rolled_back<C, R>(&self, work: impl AsyncFnOnce(&mut C) -> Result<R, BoxError>) -> Result<R, BoxError>
    where
        S: HasConnection<C>,
    {
        let failed = |error| Error::database("could not open a transaction for the test", error);
        let mut txn = self.store.begin(TIMEOUT).await.map_err(failed)?;
        let result = work(S::connection(&mut txn)).await?;
        self.store.rollback(txn).await.map_err(failed)?;
        Ok(result)
    }
}

/// Defines `number` for the trials of a store.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
macro_rules! number {
    ($store:ty, $connection:ty) => {
        impl Trial<$store> {
            /// Reads a number, such as that of `SELECT count(*) FROM payments`. No row and NULL count as 0.
            ///
            /// # Errors
            /// Fails if the SQL does, or returns several rows or columns.
            pub async fn number(&self, sql: &str) -> Result<i64, BoxError> {
                // A sum is `numeric` on PostgreSQL, and many columns are `integer`.
                let sql = sqlx::AssertSqlSafe(format!("SELECT CAST(({sql}) AS bigint)"));
                let number = async |db: &mut $connection| {
                    Ok(sqlx::query_scalar::<_, Option<i64>>(sql).fetch_one(db).await?.unwrap_or(0))
                };
                self.rolled_back(number).await
            }
        }
    };
}

#[cfg(feature = "postgres")]
number!(idem_core::Postgres, sqlx::PgConnection);
#[cfg(feature = "sqlite")]
number!(idem_core::Sqlite, sqlx::SqliteConnection);
