//! Deletion of old claims.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sqlx::Row as _;
use uuid::Uuid;

use super::Sqlite;
use super::sql::millis;
use crate::store::{Pruned, StoreError};

/// How many claims one transaction deletes: it occupies the single writer for about 10 ms.
const CHUNK: usize = 1000;
/// How long a pruner keeps others away after it last renewed its turn.
const TURN: Duration = Duration::from_secs(10);
/// The longest pause between two chunks.
const PAUSE: Duration = Duration::from_millis(250);

const ENTER: &str = r#"
UPDATE "idem_pruner" SET token = ?1, until = {now} + ?2 WHERE token IS NULL OR token = ?1 OR until < {now}"#;

const LEAVE: &str = r#"UPDATE "idem_pruner" SET token = NULL, until = 0 WHERE token = ?1"#;

/// Handler by handler, so that the index returns the oldest claims of each without reading those that another one
/// keeps: CROSS JOIN is not reordered (SQLite manual, "The SQLite Query Optimizer Overview", 8.2). `?1` and `?2` are
/// the handler and the time at which the previous chunk ended: claims before that point were kept, and need not be read
/// again.
pub(super) const DELETE: &str = r#"
DELETE FROM "idem_processed_messages" WHERE (handler_id, key) IN (
    SELECT c.handler_id, c.key FROM "idem_handlers" AS h CROSS JOIN "idem_processed_messages" AS c
    WHERE h.id >= ?1 AND c.handler_id = h.id AND c.processed_at IS NOT NULL
        AND c.processed_at >= CASE WHEN h.id = ?1 THEN ?2 ELSE 0 END AND c.processed_at < {now} - h.retention
        AND NOT EXISTS (
            SELECT 1 FROM "idem_inbox_messages" AS i WHERE i.handler_id = c.handler_id AND i.key = c.key
        )
    ORDER BY h.id, c.processed_at LIMIT ?3
)
RETURNING handler_id, processed_at"#;

const PRUNED_THROUGH: &str = r#"
UPDATE "idem_handlers" SET pruned_through = max(coalesce(pruned_through, 0), ?2) WHERE id = ?1"#;

/// Pauses after each chunk for as long as the chunk took, so that claims of other processes, which poll for the write
/// lock, can proceed. Claims of this process wait in the same fair queue.
pub(super) async fn prune(store: &Sqlite) -> Result<Pruned, StoreError> {
    let token = Uuid::new_v4();
    let mut pruned = Pruned::default();
    let mut from = (0, 0);
    loop {
        let begun = Instant::now();
        let Some(chunk) = chunk(store, token, from).await? else {
            pruned.elsewhere = pruned.claims == 0;
            return Ok(pruned);
        };
        pruned.claims += u64::try_from(chunk.claims).unwrap_or(0);
        if chunk.claims < CHUNK {
            return Ok(pruned);
        }
        from = chunk.through;
        tokio::time::sleep(begun.elapsed().min(PAUSE)).await;
    }
}

struct Chunk {
    claims: usize,
    /// The last handler whose claims were deleted, and the highest `processed_at` among them.
    through: (i64, i64),
}

/// Runs one transaction; `None` while another pruner is active. The last chunk releases the turn.
async fn chunk(store: &Sqlite, token: Uuid, from: (i64, i64)) -> Result<Option<Chunk>, StoreError> {
    let mut txn = store.transaction().await?;
    let work = async {
        let enter = sqlx::query(store.prefix.sql(ENTER)).bind(token).bind(millis(TURN));
        if enter.execute(txn.connection()).await?.rows_affected() == 0 {
            return Ok(None);
        }
        let deleted = sqlx::query(store.prefix.sql(DELETE))
            .bind(from.0)
            .bind(from.1)
            .bind(i64::try_from(CHUNK).unwrap_or(i64::MAX))
            .fetch_all(txn.connection())
            .await?;
        let mut through = BTreeMap::<i64, i64>::new();
        for row in &deleted {
            let highest = through.entry(row.try_get("handler_id")?).or_insert(i64::MIN);
            *highest = row.try_get::<i64, _>("processed_at")?.max(*highest);
        }
        for (handler, highest) in &through {
            let query = sqlx::query(store.prefix.sql(PRUNED_THROUGH)).bind(handler).bind(highest);
            query.execute(txn.connection()).await?;
        }
        if deleted.len() < CHUNK {
            sqlx::query(store.prefix.sql(LEAVE)).bind(token).execute(txn.connection()).await?;
        }
        Ok(Some(Chunk { claims: deleted.len(), through: through.pop_last().unwrap_or(from) }))
    };
    let chunk = work.await.map_err(|error| store.file.fault(error))?;
    store.finish(txn, chunk.is_some()).await?;
    Ok(chunk)
}
