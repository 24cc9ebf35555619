//! Deletion of claims that are older than the retention of their handler: a walk through the table, in steps.
//!
//! No index has the dates of the claims: it would take a seventh of the throughput of single messages. Instead, prune
//! walks the whole table, in the order in which it is stored, and remembers its place.

use std::time::{Duration, Instant};

use sqlx::Row as _;

use crate::store::StoreError;

use super::Postgres;
use super::connection::Connection;
use super::limits::{OWN, Use};
use super::rows;

/// How many blocks one transaction walks. With nothing but old claims, it deletes about 6,000 of them: few enough to be
/// quick, enough to make the cost of a commit negligible.
const STEP: i64 = 64;
/// A table of at most this many blocks (10 MiB, some 117,000 claims) is walked as a whole by each call.
const SMALL: i64 = 1280;
/// How many rounds it makes within the shortest retention. A claim is therefore kept for up to a twentieth longer.
const ROUNDS: f64 = 20.0;
/// Longer than a walk can be behind: ten years, in seconds.
const ALL: f64 = 315_360_000.0;
/// The time limit of a step: longer than for other statements, since it reads rows that were not read for days.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause between steps is at least as long as the last step took, within these bounds: at most half of one core and
/// disk.
const REST: std::ops::RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_secs(2);

/// Forbids plans that read all inbox rows for each claim: one that was made while the inbox was empty is kept. The blocks
/// of a step must not be searched for in the whole table either. A plan that has no choice but a forbidden one costs 10^10 by its
/// estimate, and one that looks at each claim costs much too: for both, the server would compile the statement anew in each
/// step, which takes longer than the step (PostgreSQL manual, 32.2).
pub(super) const PLANNER: &str = "SET LOCAL enable_seqscan = off; SET LOCAL enable_tidscan = on; SET LOCAL jit = off";

/// Whether this is the only pruner of the schema $1 until the end of the step's transaction (with a pooler, the next step may run in
/// another session), the number of blocks of the claims, the block at which the walk continues, how many seconds it is behind,
/// the shortest retention in seconds, if any claims are pruned, and the clock.
const PLACE: &str = "
    SELECT pg_try_advisory_xact_lock(hashtextextended('idem prune ' || $1::text, 0)),
           pg_relation_size(format('%I.processed_messages', $1::text)::regclass) / current_setting('block_size')::bigint,
           coalesce(max(block), 0), coalesce(extract(epoch FROM now() - max(caught_up_to)), 0)::float8,
           (SELECT extract(epoch FROM min(retention))::float8 FROM {schema}.handlers), extract(epoch FROM now())::float8
    FROM {schema}.pruner";

/// Finds the old claims from block $1 to before block $2, and locks them. The clock is $3 seconds ahead. The shortest retention
/// has $4 seconds, and nearly all claims are younger, so the retention of their handlers is not read. A transaction that is
/// about to write a conflict beside a claim holds the claim FOR KEY SHARE, so prune skips it.
///
/// The blocks are the only condition by which the planner can choose rows (TID range scan, PostgreSQL 14): the retention
/// is a subquery because a join could be planned by handler, and OFFSET keeps the last condition from becoming a join,
/// which could read all inbox rows. CASE asks for inbox rows only where the claim is old.
pub(super) const FIND: &str = "
    SELECT claim.ctid::text FROM {schema}.processed_messages AS claim
    WHERE claim.ctid >= format('(%s,0)', $1::bigint)::tid AND claim.ctid < format('(%s,0)', $2::bigint)::tid
      AND claim.processed_at < now() - make_interval(secs => $3 + $4)
      AND CASE
          WHEN claim.processed_at < now() - make_interval(secs => $3)
               - (SELECT h.retention FROM {schema}.handlers AS h WHERE h.id = claim.handler_id)
          THEN NOT EXISTS (SELECT FROM {schema}.inbox_messages AS i
                           WHERE i.handler_id = claim.handler_id AND i.key = claim.key OFFSET 0)
          ELSE false END
    FOR UPDATE OF claim SKIP LOCKED";

/// A separate statement, so that it sees an inbox row that was committed before the claim could be locked. A row's ctid
/// cannot change while it is locked. The reply to a request goes with its claim.
const DELETE: &str = "
    WITH gone AS (
        DELETE FROM {schema}.processed_messages AS claim
        WHERE ctid = ANY($1::text[]::tid[]) AND processed_at IS NOT NULL
          AND NOT EXISTS (SELECT FROM {schema}.inbox_messages AS i
                          WHERE i.handler_id = claim.handler_id AND i.key = claim.key)
        RETURNING handler_id, key, processed_at
    ), replied AS (
        DELETE FROM {schema}.replies AS r USING gone WHERE r.handler_id = gone.handler_id AND r.key = gone.key
    ), latest AS (
        SELECT handler_id, max(processed_at) AS processed_at FROM gone GROUP BY handler_id
    ), locked AS MATERIALIZED (
        SELECT h.id FROM {schema}.handlers AS h WHERE h.id IN (SELECT handler_id FROM latest) ORDER BY h.id FOR UPDATE
    ), through AS (
        UPDATE {schema}.handlers AS h SET pruned_through = greatest(h.pruned_through, latest.processed_at)
        FROM latest, locked WHERE h.id = latest.handler_id AND h.id = locked.id
    )
    SELECT count(*) FROM gone";

/// Records the block $1 at which the walk continues, and that it has caught up $2 seconds.
const MOVE: &str = "
    INSERT INTO {schema}.pruner AS p (id, block) VALUES (1, $1)
    ON CONFLICT (id) DO UPDATE
        SET block = excluded.block, caught_up_to = least(now(), p.caught_up_to + make_interval(secs => $2))";

/// One step of the walk.
struct Step {
    /// How many blocks this call walks in all, if this is its first step.
    share: i64,
    blocks: i64,
    deleted: i64,
}

/// Returns how many of these blocks a call walks if the walk is so many seconds behind, and how many seconds it has caught up
/// when so many were walked. The time that a walk takes, or during which nobody walks, is therefore never lost.
fn pace(blocks: i64, retention: f64, behind: f64, walked: i64) -> (i64, f64) {
    if blocks <= SMALL {
        return (blocks, ALL);
    }
    let round = (retention / ROUNDS).max(0.001);
    let share = blocks as f64 * behind / round;
    ((share as i64).clamp(STEP, blocks), (round * walked as f64 / blocks as f64).min(ALL))
}

impl Postgres {
    /// Returns how many claims it has deleted.
    pub(super) async fn prune_claims(&self) -> Result<u64, StoreError> {
        let (mut claims, mut left) = (0, None);
        loop {
            let begun = Instant::now();
            // Returned between steps: where the store has few connections, the extension of leases waits for it.
            let long = self.0.pool.long().await?;
            let mut connection = self.0.pool.connection(Use::Own).await?;
            let step = self.prune_step(&mut connection).await?;
            connection.put_back();
            drop(long);
            let Some(step) = step else { return Ok(claims) };
            claims += step.deleted.unsigned_abs();
            let rest = left.unwrap_or(step.share) - step.blocks;
            if rest <= 0 || step.blocks == 0 {
                return Ok(claims);
            }
            left = Some(rest);
            tokio::time::sleep(begun.elapsed().clamp(*REST.start(), *REST.end())).await;
        }
    }

    /// Returns `None` while another pruner is active, or if no claims are pruned. If anything fails, the connection is closed,
    /// which ends the transaction and releases its lock.
    async fn prune_step(&self, connection: &mut Connection) -> Result<Option<Step>, StoreError> {
        let asked = Instant::now();
        let begin = connection.begin(PATIENCE);
        connection.text(format!("{begin}; {PLANNER}")).await?;
        let rows = connection.bound(OWN, self.query(PLACE).bind(&self.0.schema)).await?;
        let (is_free, blocks, block, behind, retention, now): (bool, i64, i64, f64, Option<f64>, f64) =
            rows::one(&rows)?;
        let Some(retention) = retention.filter(|_| is_free) else {
            connection.text("ROLLBACK").await?;
            return Ok(None);
        };
        // The table may have become smaller since the last step (VACUUM, TRUNCATE).
        let from = if block < blocks { block } else { 0 };
        let to = (from + STEP).min(blocks);
        let now = Duration::try_from_secs_f64(now.max(0.0)).unwrap_or(Duration::MAX);
        let ahead = self.0.clock.ahead(asked, now).as_secs_f64();
        let find = self.query(FIND).bind(from).bind(to).bind(ahead).bind(retention);
        let rows = connection.bound(PATIENCE, find).await?;
        let old = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
        let mut deleted = 0_i64;
        if !old.is_empty() {
            let rows = connection.bound(PATIENCE, self.query(DELETE).bind(&old)).await?;
            (deleted,) = rows::one::<(i64,)>(&rows)?;
        }
        let next = if to < blocks { to } else { 0 };
        let walked = to - from;
        let (share, caught_up) = pace(blocks, retention, behind, walked);
        connection.bound(OWN, self.query(MOVE).bind(next).bind(caught_up)).await?;
        connection.text("COMMIT").await?;
        Ok(Some(Step { share, blocks: walked, deleted }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: f64 = 86_400.0;
    const MINUTE: f64 = 60.0;
    const BLOCKS: i64 = 2_000_000;

    #[test]
    fn a_round_takes_a_twentieth_of_the_retention() {
        let share = |behind| pace(BLOCKS, 20.0 * DAY, behind, 0).0;
        let minutes = BLOCKS / share(MINUTE);
        assert!((1435..1445).contains(&minutes), "{minutes}");
        assert_eq!(share(30.0 * DAY), BLOCKS, "at most one round");
        assert_eq!([share(-MINUTE), share(0.0), pace(9000, 0.0, MINUTE, 0).0], [STEP, STEP, 9000]);
    }

    #[test]
    fn a_share_is_worth_the_time_that_it_was_computed_from() {
        let (share, _) = pace(BLOCKS, 20.0 * DAY, MINUTE, 0);
        let (_, worth) = pace(BLOCKS, 20.0 * DAY, MINUTE, share);
        assert!((worth - MINUTE).abs() < 1.0, "{worth}");
    }

    #[test]
    fn a_small_table_is_walked_at_once() {
        for blocks in [0, 1, SMALL] {
            assert_eq!(pace(blocks, 9000.0 * DAY, 0.0, 1), (blocks, ALL));
        }
    }
}
