//! The ping.

use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::store::StoreError;

use super::Postgres;
use super::begin;
use super::limits::OWN;
use super::state::bytes;

/// Writes and commits, as a worker does: a database that is read-only, full or without its tables still answers
/// `SELECT 1`, and consumption would continue and pause for each message. No handler has the id 0.
pub(super) async fn ping(store: &Postgres) -> Result<(), StoreError> {
    let mut connection = store.pool().own_at_once().await?;
    let begin = begin::text(connection.session(), connection.kind(), OWN);
    let probe = store.sql().ping.with(&[bytes(Uuid::new_v4().as_bytes())]);
    connection.ask(OWN, sqlx::raw_sql(AssertSqlSafe(format!("{begin} {probe}; COMMIT")))).await?;
    connection.put_back();
    Ok(())
}
