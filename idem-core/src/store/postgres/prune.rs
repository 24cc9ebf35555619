//! Deletion of claims that are older than the retention of their handler: a walk through the table, in steps.

use std::time::{Duration, Instant};

use sqlx::Row as _;

use crate::store::StoreError;
use crate::store::sql::Walk;

use super::Postgres;
use super::connection::Connection;
use super::limits::{OWN, Use};
use super::prune_sql::{self, PLANNER};
use super::rows;

/// How many blocks one transaction walks. With nothing but old claims, it deletes about 6,000 of them: few enough to be
/// quick, enough to make the cost of a commit negligible.
const STEP: i64 = 64;
/// A table of at most this many blocks (10 MiB, some 117,000 claims) is walked as a whole by each call.
const SMALL: u64 = 1280;
/// The time limit of a step: longer than for other statements, since it reads rows that were not read for days.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause between steps is at least as long as the last step took, within these bounds: at most half of one core and
/// disk.
const REST: std::ops::RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_secs(2);

/// One step of the walk.
#[derive(Default)]
struct Step {
    /// How many blocks this call walks in all, if this is its first step.
    share: u64,
    blocks: u64,
    deleted: u64,
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
            claims += step.deleted;
            let rest = left.unwrap_or(step.share).saturating_sub(step.blocks);
            if rest == 0 || step.blocks == 0 {
                return Ok(claims);
            }
            left = Some(rest);
            tokio::time::sleep(begun.elapsed().clamp(*REST.start(), *REST.end())).await;
        }
    }

    /// Returns `None` while another pruner is active. If anything fails, the connection is closed, which ends the
    /// transaction and releases its lock.
    async fn prune_step(&self, connection: &mut Connection) -> Result<Option<Step>, StoreError> {
        let asked = Instant::now();
        let begin = connection.begin(PATIENCE);
        connection.text(format!("{begin}; {PLANNER}")).await?;
        let rows = connection.bound(OWN, self.query(prune_sql::PLACE).bind(&self.0.schema)).await?;
        let (is_free, blocks, block, behind, retention, now): (bool, i64, i64, f64, Option<f64>, f64) =
            rows::one(&rows)?;
        let Some(retention) = retention.filter(|_| is_free) else {
            connection.text("ROLLBACK").await?;
            return Ok(is_free.then(Step::default));
        };
        let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
        // The table may have become smaller since the last step (VACUUM, TRUNCATE).
        let from = if block < blocks { block } else { 0 };
        let to = (from + STEP).min(blocks);
        let ahead = self.0.clock.ahead(asked, seconds(now)).as_secs_f64();
        let find = self.query(prune_sql::FIND).bind(from).bind(to).bind(ahead);
        let rows = connection.bound(PATIENCE, find).await?;
        let old = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
        let mut deleted = 0_i64;
        if !old.is_empty() {
            let rows = connection.bound(PATIENCE, self.query(prune_sql::DELETE).bind(&old)).await?;
            (deleted,) = rows::one::<(i64,)>(&rows)?;
        }
        let next = if to < blocks { to } else { 0 };
        let (size, step, walked) = (blocks.unsigned_abs(), STEP.unsigned_abs(), (to - from).unsigned_abs());
        let walk = Walk { size, small: SMALL, step, retention: seconds(retention) };
        let caught_up = walk.worth(walked).as_secs_f64();
        connection.bound(OWN, self.query(prune_sql::MOVE).bind(next).bind(caught_up)).await?;
        connection.text("COMMIT").await?;
        Ok(Some(Step { share: walk.share(seconds(behind)), blocks: walked, deleted: deleted.unsigned_abs() }))
    }
}
