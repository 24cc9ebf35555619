//! Deletion of claims that are older than the retention of their handler: a walk through the table, in steps.

use std::time::{Duration, Instant};

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::store::sql::Walk;
use crate::store::{Pruned, StoreError};

use super::Postgres;
use super::connection::Connection;
use super::limits::OWN;
use super::prune_sql::{self, PLANNER};

/// How many blocks one transaction walks. With nothing but old claims, it deletes about 6,000 of them: few enough to be
/// quick, enough to make the cost of a commit negligible.
const STEP: u64 = 64;
/// A table of at most this many blocks (10 MiB, some 117,000 claims) is walked as a whole by each call.
const SMALL: u64 = 1280;
/// The least time from the begin of one step to that of the next: 4 MiB a second, unless the table needs more.
const PACE: Duration = Duration::from_millis(125);
/// The time limit of a step: longer than for other statements, since it reads rows that were not read for days.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause between steps is at least as long as the last step took, within these bounds: at most half of one core and
/// disk.
const REST: std::ops::RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_secs(2);

/// One step of the walk.
struct Step {
    /// How many blocks this call walks in all, if this is its first step.
    share: u64,
    blocks: u64,
    deleted: u64,
    /// The least time from its begin to that of the next.
    pace: Duration,
}

/// Where the walk is, and in which table.
struct Place {
    blocks: u64,
    block: u64,
    behind: Duration,
    /// `None` if no claims are pruned.
    retention: Option<Duration>,
    /// The time of the database since 1970.
    now: Duration,
}

impl Postgres {
    pub(super) async fn prune_claims(&self) -> Result<Pruned, StoreError> {
        let (mut claims, mut left) = (0, None);
        loop {
            let begun = Instant::now();
            // Given back between steps: where the store has few connections, the extension of leases waits for it.
            let mut connection = self.0.pool.long().await?;
            let step = self.prune_step(&mut connection).await?;
            connection.put_back();
            let Some(step) = step else { return Ok(Pruned { claims, elsewhere: claims == 0 }) };
            claims += step.deleted;
            let rest = left.unwrap_or(step.share).saturating_sub(step.blocks);
            if rest == 0 || step.blocks == 0 {
                return Ok(Pruned::of(claims));
            }
            left = Some(rest);
            let took = begun.elapsed();
            tokio::time::sleep(step.pace.saturating_sub(took).max(took.clamp(*REST.start(), *REST.end()))).await;
        }
    }

    /// Returns `None` while another pruner is active. If anything fails, the connection is closed, which ends the
    /// transaction and releases its lock.
    async fn prune_step(&self, connection: &mut Connection) -> Result<Option<Step>, StoreError> {
        let asked = Instant::now();
        let begin = connection.begin(PATIENCE);
        connection.text(format!("{begin}; {PLANNER}")).await?;
        let lock = connection.bound(OWN, self.query(prune_sql::LOCK).bind(&self.0.schema)).await?;
        let free = lock.first().map_or(Ok(false), |row| row.try_get(0))?;
        let place = if free {
            Place::of(&connection.bound(OWN, self.query(prune_sql::PLACE).bind(&self.0.schema)).await?)?
        } else {
            None
        };
        let Some((place, retention)) = place.and_then(|place| place.retention.map(|retention| (place, retention)))
        else {
            connection.text("ROLLBACK").await?;
            return Ok(free.then_some(Step { share: 0, blocks: 0, deleted: 0, pace: PACE }));
        };
        let (from, to) = place.range();
        let ahead = self.0.clock.ahead(asked, place.now).as_secs_f64();
        let find = self.query(prune_sql::FIND).bind(number(from)).bind(number(to)).bind(ahead);
        let rows = connection.bound(PATIENCE, find).await?;
        let old = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
        let mut deleted = 0_i64;
        if !old.is_empty() {
            let rows = connection.bound(PATIENCE, self.query(prune_sql::DELETE).bind(&old)).await?;
            deleted = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
        }
        let next = if to < place.blocks { to } else { 0 };
        let walk = Walk { size: place.blocks, small: SMALL, step: STEP, retention };
        let caught_up = walk.worth(to - from).as_secs_f64();
        connection.bound(OWN, self.query(prune_sql::MOVE).bind(number(next)).bind(caught_up)).await?;
        connection.text("COMMIT").await?;
        // Half of the time that a step is worth has to be enough for it.
        let (share, pace) = (walk.share(place.behind), PACE.min(walk.worth(STEP) / 2));
        Ok(Some(Step { share, blocks: to - from, deleted: deleted.unsigned_abs(), pace }))
    }
}

impl Place {
    fn of(rows: &[PgRow]) -> Result<Option<Self>, StoreError> {
        let Some(row) = rows.first() else { return Ok(None) };
        let (blocks, block): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        let (behind, retention, now): (f64, Option<f64>, f64) = (row.try_get(2)?, row.try_get(3)?, row.try_get(4)?);
        let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
        Ok(Some(Self {
            blocks: blocks.unsigned_abs(),
            block: block.unsigned_abs(),
            behind: seconds(behind),
            retention: retention.map(seconds),
            now: seconds(now),
        }))
    }

    /// The blocks of the next step. The table may have become smaller since the last one (VACUUM, TRUNCATE).
    fn range(&self) -> (u64, u64) {
        let from = if self.block < self.blocks { self.block } else { 0 };
        (from, (from + STEP).min(self.blocks))
    }
}

fn number(block: u64) -> i64 {
    i64::try_from(block).unwrap_or(i64::MAX)
}
