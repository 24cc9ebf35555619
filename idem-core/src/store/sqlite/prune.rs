//! Deletion of claims that are older than the retention of their handler: a walk through the table, in short transactions.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::sql::{self, duration, millis};
use super::{Sqlite, Txn};
use crate::store::Answer;

/// How many claims one transaction walks, and deletes at most: it occupies the single writer for about 10 ms.
const STEP: i64 = 1000;
/// How many claims a call walks at least.
const SMALL: i64 = 100_000;
/// With a call for each minute, a round through all claims takes a thirtieth of the shortest retention, in milliseconds. The table
/// may have grown since the last one.
const ROUND: i64 = 30 * 60_000;
/// How long a pruner keeps others away, unless it ends earlier. If it takes longer, both walk, and delete each claim once.
const TURN: Duration = Duration::from_secs(60);
/// The longest pause between two transactions.
const PAUSE: Duration = Duration::from_millis(250);

/// Takes the turn for ?1 milliseconds, unless another pruner has it. Returns the last claim that was walked, how many claims there
/// are, the clock, and the shortest retention, if any claims are pruned. A turn that ends later was taken by a clock that was ahead.
pub(super) const ENTER: &str = r#"
UPDATE "idem_pruner" SET locked_until = {now} + ?1 WHERE locked_until NOT BETWEEN {now} AND {now} + ?1
RETURNING handler_id, key, max(size, walked), {now}, (SELECT min(retention) FROM "idem_handlers")"#;

/// The last one of the ?3 claims behind this one.
pub(super) const END: &str = r#"
SELECT handler_id, key FROM "idem_processed_messages" WHERE (handler_id, key) > (?1, ?2)
ORDER BY handler_id, key LIMIT 1 OFFSET ?3 - 1"#;

/// Deletes the old claims behind one claim up to another, at the time ?5.
pub(super) const DELETE: &str = r#"
DELETE FROM "idem_processed_messages" AS c WHERE (c.handler_id, c.key) > (?1, ?2) AND (c.handler_id, c.key) <= (?3, ?4)
    AND c.processed_at < ?5 - (SELECT h.retention FROM "idem_handlers" AS h WHERE h.id = c.handler_id)
    AND NOT EXISTS (
        SELECT 1 FROM "idem_inbox_messages" AS i WHERE i.handler_id = c.handler_id AND i.key = c.key
    )
RETURNING handler_id, processed_at"#;

/// Deletes the replies to requests whose claims are deleted, in the transaction that deletes these: SQLite has no DELETE in another
/// statement.
pub(super) const REPLIES: &str = r#"
DELETE FROM "idem_replies" AS r WHERE (r.handler_id, r.key) > (?1, ?2) AND (r.handler_id, r.key) <= (?3, ?4)
    AND NOT EXISTS (
        SELECT 1 FROM "idem_processed_messages" AS c WHERE c.handler_id = r.handler_id AND c.key = r.key
    )"#;

pub(super) const PRUNED_THROUGH: &str = r#"
UPDATE "idem_handlers" SET pruned_through = max(coalesce(pruned_through, 0), ?2) WHERE id = ?1"#;

/// Records the claim behind which the walk continues, an empty key at the end of a round, and that it has read ?3 more; and gives
/// the turn back. A call that has read nothing at the begin of a round has not ended one.
pub(super) const RECORD: &str = r#"
UPDATE "idem_pruner" SET locked_until = 0, handler_id = ?1, key = ?2,
    walked = iif(?2 = x'', 0, walked + ?3), size = iif(?2 = x'' AND ?3 > 0, walked + ?3, max(size, walked + ?3))"#;

/// A claim: its handler and its key.
type Claim = (i64, Vec<u8>);

/// A walk ends where the table ends, and the next one begins anew. There is no index of the dates: each message would pay for it.
pub(super) async fn prune(store: &Sqlite) -> Answer<u64> {
    let asked = Instant::now();
    let enter = async |txn: &mut Txn| {
        let enter = sqlx::query_as::<_, (i64, Vec<u8>, i64, i64, Option<i64>)>(sql::filled(ENTER));
        enter.bind(millis(TURN)).fetch_optional(txn.connection()).await
    };
    let Some((handler, key, size, now, retention)) = store.in_transaction(enter).await? else {
        return Ok(0);
    };
    let now = now - millis(store.clock.ahead(asked, duration(now)));
    // Nothing, if all claims are kept forever.
    let share = retention.map_or(0, |retention| SMALL.max(size.saturating_mul(ROUND) / retention.max(1)));
    let (mut last, mut walked) = ((handler, key), 0);
    let claims = walk(store, now, share, &mut last, &mut walked).await;
    // Also if a step has failed: the next call goes on from there.
    store.change(sql::query(RECORD).bind(last.0).bind(last.1).bind(walked)).await?;
    claims
}

/// Walks on behind the last claim, and returns how many it has deleted. Pauses after each transaction for as long as it took, so
/// that claims of other processes, which poll for the write lock, can proceed. Claims of this process wait in the same fair queue.
async fn walk(store: &Sqlite, now: i64, share: i64, last: &mut Claim, walked: &mut i64) -> Answer<u64> {
    let mut claims = 0;
    while *walked < share {
        let begun = Instant::now();
        let step = async |txn: &mut Txn| {
            let end = sqlx::query_as::<_, Claim>(sql::filled(END)).bind(last.0).bind(&last.1).bind(STEP);
            let end = end.fetch_optional(txn.connection()).await?;
            let (handler, key) = end.clone().unwrap_or((i64::MAX, Vec::new()));
            let delete = sqlx::query_as::<_, (i64, i64)>(sql::filled(DELETE)).bind(last.0).bind(&last.1);
            let mut deleted = delete.bind(handler).bind(&key).bind(now).fetch_all(txn.connection()).await?;
            if !deleted.is_empty() {
                let replies = sql::query(REPLIES).bind(last.0).bind(&last.1).bind(handler).bind(&key);
                replies.execute(txn.connection()).await?;
            }
            // Of each handler, the latest date comes last, and is kept.
            deleted.sort_unstable();
            for (handler, through) in deleted.iter().copied().collect::<BTreeMap<_, _>>() {
                sql::query(PRUNED_THROUGH).bind(handler).bind(through).execute(txn.connection()).await?;
            }
            Ok((end, deleted.len() as u64))
        };
        let (end, deleted) = store.in_transaction(step).await?;
        claims += deleted;
        *walked += STEP;
        match end {
            Some(end) => *last = end,
            None => {
                *last = (0, Vec::new());
                break;
            }
        }
        tokio::time::sleep(begun.elapsed().min(PAUSE)).await;
    }
    Ok(claims)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use uuid::Uuid;

    use super::*;
    use crate::store::Consumers as _;
    use crate::store::sql::Clock;
    use crate::store::sqlite::sql::since_epoch;

    const DAY: i64 = 86_400_000;

    /// As if the clock had jumped: at the last reading, it was eight days behind the present one.
    #[tokio::test]
    async fn a_clock_that_jumps_forward_prunes_no_claim_before_its_time() {
        let file = std::env::temp_dir().join(format!("idem-{}.db", Uuid::new_v4().simple()));
        let mut store = Sqlite::connect(format!("sqlite:{}", file.display())).await.unwrap();
        let handler = store.register("billing", &["order_paid"]).await.unwrap()[0];
        let now = since_epoch(SystemTime::now());
        for (key, days) in [("six days", 6 + 8), ("eight days", 8 + 8)] {
            let insert = r#"INSERT INTO "idem_processed_messages" VALUES (?, ?, x'', ?)"#;
            let insert = sqlx::query(insert).bind(handler.0).bind(key.as_bytes()).bind(now - days * DAY);
            store.change(insert).await.unwrap();
        }
        let jumped = Clock::default();
        jumped.ahead(Instant::now(), duration(now - 8 * DAY));
        store.clock = Arc::new(jumped);
        assert_eq!([store.prune().await.unwrap(), store.prune().await.unwrap()], [1, 0]);
        drop(store);
        let _ = std::fs::remove_file(file);
    }
}
