//! SeaORM on the connection that idem lends to a handler. Copy this file.

use async_trait::async_trait;
use sea_orm::{ConnectionTrait, DbBackend, DbErr, ExecResult, QueryResult, RuntimeErr, Statement, Values};
use sea_query_sqlx::SqlxValues;
use sqlx::{AssertSqlSafe, Executor, PgConnection, Postgres};
use tokio::sync::Mutex;

/// The transaction of a handler, for SeaORM. Its statements run one after another. It begins no transaction of its own,
/// so that everything is committed together with the claim of the message.
pub struct InTransaction<'a>(Mutex<&'a mut PgConnection>);

impl<'a> InTransaction<'a> {
    pub fn new(tx: &'a mut PgConnection) -> Self {
        Self(Mutex::new(tx))
    }
}

#[async_trait]
impl ConnectionTrait for InTransaction<'_> {
    fn get_database_backend(&self) -> DbBackend {
        DbBackend::Postgres
    }

    async fn execute_raw(&self, statement: Statement) -> Result<ExecResult, DbErr> {
        Ok(self.0.lock().await.execute(query(statement)).await.map_err(failed)?.into())
    }

    async fn execute_unprepared(&self, sql: &str) -> Result<ExecResult, DbErr> {
        Ok(self.0.lock().await.execute(AssertSqlSafe(sql)).await.map_err(failed)?.into())
    }

    async fn query_one_raw(&self, statement: Statement) -> Result<Option<QueryResult>, DbErr> {
        Ok(self.0.lock().await.fetch_optional(query(statement)).await.map_err(failed)?.map(Into::into))
    }

    async fn query_all_raw(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        Ok(self.0.lock().await.fetch_all(query(statement)).await.map_err(failed)?.into_iter().map(Into::into).collect())
    }
}

fn query(Statement { sql, values, .. }: Statement) -> sqlx::query::Query<'static, Postgres, SqlxValues> {
    sqlx::query_with(AssertSqlSafe(sql), SqlxValues(values.unwrap_or_else(|| Values(Vec::new()))))
}

/// Keeps sqlx's error in the chain, where idem sees a deadlock and tries again.
fn failed(error: sqlx::Error) -> DbErr {
    DbErr::Query(RuntimeErr::SqlxError(error.into()))
}
