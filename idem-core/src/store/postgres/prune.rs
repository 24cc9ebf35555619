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
use super::prune_sql::{self, PLANNER};
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
            // Given back between steps: where the store has few connections, the extension of leases waits for it.
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
        let rows = connection.bound(OWN, self.query(prune_sql::PLACE).bind(&self.0.schema)).await?;
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
        let find = self.query(prune_sql::FIND).bind(from).bind(to).bind(ahead);
        let rows = connection.bound(PATIENCE, find).await?;
        let old = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
        let mut deleted = 0_i64;
        if !old.is_empty() {
            let rows = connection.bound(PATIENCE, self.query(prune_sql::DELETE).bind(&old)).await?;
            (deleted,) = rows::one::<(i64,)>(&rows)?;
        }
        let next = if to < blocks { to } else { 0 };
        let walked = to - from;
        let (share, caught_up) = pace(blocks, retention, behind, walked);
        connection.bound(OWN, self.query(prune_sql::MOVE).bind(next).bind(caught_up)).await?;
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
