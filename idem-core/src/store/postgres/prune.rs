//! Deletion of claims that are older than the retention of their handler, in chunks.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Row as _};

use crate::store::{Pruned, StoreError};

use super::Postgres;
use super::begin;
use super::connection::Connection;
use super::limits::OWN;
use super::statement::Statement;

/// How many claims one transaction deletes: few enough to be quick, enough to make the cost of a commit negligible.
const CHUNK: i64 = 5_000;
/// The time limit of a chunk: longer than for other statements, since it reads rows that were not read for days.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause between chunks is as long as the last chunk took, within these bounds: at most half of one core and disk.
const REST: std::ops::RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_secs(2);

impl Postgres {
    pub(super) async fn prune_claims(&self) -> Result<Pruned, StoreError> {
        let mut claims = 0;
        let elsewhere = loop {
            let begun = Instant::now();
            // Given back between chunks: where the store has few connections, the extension of leases waits for it.
            let mut connection = self.pool().own().await?;
            let chunk = self.prune_chunk(&mut connection).await?;
            connection.put_back();
            let Some((found, deleted)) = chunk else { break true };
            claims += deleted;
            if found < CHUNK as usize {
                break false;
            }
            tokio::time::sleep(begun.elapsed().clamp(*REST.start(), *REST.end())).await;
        };
        Ok(Pruned { claims, elsewhere })
    }

    /// Returns how many claims were found and deleted; `None` while another pruner is active. If anything fails, the
    /// connection is closed, which ends the transaction and releases its lock.
    async fn prune_chunk(&self, connection: &mut Connection) -> Result<Option<(usize, u64)>, StoreError> {
        let begin = begin::text(connection.session(), connection.kind(), PATIENCE);
        connection.ask(OWN, sqlx::raw_sql(AssertSqlSafe(begin))).await?;
        if !self.advise(connection, &self.sql().prune_lock).await? {
            connection.ask(OWN, sqlx::raw_sql("ROLLBACK")).await?;
            return Ok(None);
        }
        let find = self.sql().prune_find.query().bind(CHUNK);
        let rows = connection.bound(PATIENCE, find).await?;
        let places = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
        let rows = connection.bound(PATIENCE, self.sql().prune_delete.query().bind(&places)).await?;
        connection.ask(OWN, sqlx::raw_sql("COMMIT")).await?;
        let deleted: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
        Ok(Some((places.len(), deleted.unsigned_abs())))
    }

    async fn advise(&self, connection: &mut Connection, statement: &Statement) -> Result<bool, StoreError> {
        let rows = connection.bound(OWN, statement.query().bind(self.schema())).await?;
        Ok(rows.first().map_or(Ok(false), |row| row.try_get(0))?)
    }
}
