//! The statements of relays, and of operators of the outbox.

use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres as Pg, Row as _};
use uuid::Uuid;

use crate::outbox::{LANES, StagedMessage, envelope};
use crate::store::{
    DeadOutgoing, LaneLeases, OutboxFound, OutboxId, OutboxRead, OutboxRow, OutboxStats, Page, PublishFailure, RowRef,
    StoreError, error_text,
};

use super::rows::{duration, secs, time};
use super::{Postgres, outbox_sql};

fn lanes(lanes: impl IntoIterator<Item = u8>) -> Vec<i16> {
    lanes.into_iter().map(i16::from).collect()
}

fn lane(number: i16) -> u8 {
    u8::try_from(number).unwrap_or_default()
}

fn count(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Binds the lanes, ids and message ids of rows.
fn named<'q>(
    query: Query<'q, Pg, PgArguments>,
    rows: impl Iterator<Item = RowRef> + Clone,
) -> Query<'q, Pg, PgArguments> {
    let query = query.bind(lanes(rows.clone().map(|row| row.lane)));
    let query = query.bind(rows.clone().map(|row| row.id).collect::<Vec<_>>());
    query.bind(rows.map(|row| row.message_id).collect::<Vec<_>>())
}

/// Decodes the columns that waiting and dead messages have in common.
fn message(row: &PgRow) -> Result<StagedMessage, sqlx::Error> {
    let envelope: &str = row.try_get(6)?;
    let message = envelope::open(row.try_get(4)?, row.try_get(5)?, envelope.as_bytes(), row.try_get(7)?);
    let attempts = u32::try_from(row.try_get::<i32, _>(3)?).unwrap_or(0);
    Ok(StagedMessage::new(row.try_get(2)?, message)
        .with_staged_at(time(row.try_get(8)?))
        .with_attempt(attempts.saturating_add(1)))
}

/// How many lanes one statement counts. Each statement then ends in time although rows were deleted that an old snapshot
/// keeps, and those of relays run between them.
const GROUP: u8 = LANES / 4;

impl Postgres {
    pub(super) async fn renew(&self, outbox: OutboxId, token: Uuid, lease: Duration) -> Result<LaneLeases, StoreError> {
        let query = self.query(outbox_sql::ALIVE).bind(outbox.number).bind(token).bind(secs(lease));
        let rows = self.ask(query).await?;
        let Some(row) = rows.first() else { return Ok(LaneLeases::default()) };
        let held: Vec<i16> = row.try_get(0)?;
        Ok(LaneLeases { held: held.into_iter().map(lane).collect(), relays: count(row.try_get(1)?) })
    }

    pub(super) async fn take_free(
        &self,
        outbox: OutboxId,
        token: Uuid,
        lease: Duration,
        limit: u32,
    ) -> Result<Vec<u8>, StoreError> {
        let query =
            self.query(outbox_sql::TAKE).bind(outbox.number).bind(token).bind(secs(lease)).bind(i64::from(limit));
        let rows = self.ask(query).await?;
        Ok(rows.iter().map(|row| row.try_get(0).map(lane)).collect::<Result<_, _>>()?)
    }

    pub(super) async fn give(&self, outbox: OutboxId, token: Uuid, which: Option<&[u8]>) -> Result<(), StoreError> {
        let which = which.map(|which| lanes(which.iter().copied()));
        self.ask(self.query(outbox_sql::GIVE).bind(outbox.number).bind(token).bind(which)).await.map(drop)
    }

    pub(super) async fn read_lanes(&self, outbox: OutboxId, read: OutboxRead<'_>) -> Result<OutboxFound, StoreError> {
        let OutboxRead { lanes: asked, blocked, known, bytes, marks } = read;
        let query = self.query(&outbox_sql::read()).bind(outbox.number).bind(lanes(asked.iter().map(|look| look.lane)));
        let query = query.bind(asked.iter().map(|look| look.floor).collect::<Vec<_>>());
        let query = query.bind(asked.iter().map(|look| i64::from(look.limit)).collect::<Vec<_>>());
        let query = query.bind(blocked.iter().map(|key| key.as_bytes().to_vec()).collect::<Vec<_>>());
        let query = query.bind(i64::try_from(bytes).unwrap_or(i64::MAX)).bind(known).bind(marks);
        let rows = self.ask_long(query).await?;
        let Some(first) = rows.first() else { return Ok(OutboxFound::default()) };
        let (open, mark) = (first.try_get(11)?, first.try_get(12)?);
        let row = |row: &PgRow| {
            Ok(OutboxRow {
                id: row.try_get(0)?,
                lane: lane(row.try_get(1)?),
                message: message(row)?,
                age: duration(row.try_get(9)?),
                due: duration(row.try_get::<Option<i64>, _>(10)?.unwrap_or(0)),
            })
        };
        // Without a message there is one row, which has none.
        let some = |row: &&PgRow| !matches!(row.try_get::<Option<i64>, _>(0), Ok(None));
        let cut = rows.iter().filter(|row| matches!(row.try_get(13), Ok(true)));
        let cut = cut.map(|row| row.try_get(1).map(lane)).collect::<Result<_, _>>()?;
        let rows = rows.iter().filter(some).map(row).collect::<Result<_, sqlx::Error>>()?;
        Ok(OutboxFound { rows, cut, open, mark, highest: 0 })
    }

    pub(super) async fn delete(&self, outbox: OutboxId, token: Uuid, published: &[RowRef]) -> Result<u64, StoreError> {
        let query = self.query(&outbox_sql::delete()).bind(outbox.number).bind(token);
        let rows = self.ask_long(named(query, published.iter().copied())).await?;
        Ok(rows.first().map_or(Ok(0), |row| row.try_get::<i64, _>(0))?.unsigned_abs())
    }

    pub(super) async fn record(
        &self,
        outbox: OutboxId,
        token: Uuid,
        failures: &[PublishFailure],
    ) -> Result<(), StoreError> {
        let due: Vec<Option<f64>> = failures.iter().map(|failure| failure.next.map(secs)).collect();
        let errors: Vec<Vec<u8>> =
            failures.iter().map(|failure| error_text(&failure.error).into_owned().into_bytes()).collect();
        let query = self.query(&outbox_sql::record()).bind(outbox.number).bind(token);
        let query = named(query, failures.iter().map(|failure| failure.row));
        let attempts = failures.iter().map(|failure| i32::try_from(failure.attempts).unwrap_or(i32::MAX));
        self.ask(query.bind(due).bind(errors).bind(attempts.collect::<Vec<_>>())).await.map(drop)
    }

    pub(super) async fn level(&self, outbox: OutboxId, limit: u64) -> Result<OutboxStats, StoreError> {
        let bounded = |limit| i64::try_from(limit).unwrap_or(i64::MAX);
        let mut stats = OutboxStats { relays: self.alive(outbox).await?, ..OutboxStats::default() };
        let query = self.query(outbox_sql::DEAD).bind(outbox.number).bind(bounded(limit));
        if let Some(row) = self.ask_long(query).await?.first() {
            stats.dead = row.try_get::<i64, _>(0)?.unsigned_abs();
        }
        for first in (0..LANES).step_by(GROUP.into()) {
            let (lanes, left) = ((i16::from(first), i16::from(first + GROUP - 1)), limit.saturating_sub(stats.waiting));
            let query = self.query(outbox_sql::WAITING).bind(outbox.number);
            let query = query.bind(lanes.0).bind(lanes.1).bind(bounded(left));
            if let Some(row) = self.ask_long(query).await?.first() {
                stats.waiting += row.try_get::<i64, _>(0)?.unsigned_abs();
                stats.oldest = stats.oldest.max(row.try_get::<Option<i64>, _>(1)?.map(duration));
            }
        }
        Ok(stats)
    }

    pub(super) async fn alive(&self, outbox: OutboxId) -> Result<u32, StoreError> {
        let rows = self.ask(self.query(outbox_sql::LIVE).bind(outbox.number)).await?;
        Ok(rows.first().map_or(Ok(0), |row| row.try_get(0).map(count))?)
    }

    pub(super) async fn dead_letters(&self, outbox: OutboxId, page: Page) -> Result<Vec<DeadOutgoing>, StoreError> {
        let query = self.query(&outbox_sql::dead()).bind(outbox.number).bind(page.before).bind(i64::from(page.limit));
        let dead = |row: &PgRow| {
            Ok(DeadOutgoing {
                id: row.try_get(0)?,
                message: message(row)?,
                attempts: u32::try_from(row.try_get::<i32, _>(3)?).unwrap_or(0),
                error: row.try_get(9)?,
                died_at: time(row.try_get(10)?),
            })
        };
        Ok(self.ask(query).await?.iter().map(dead).collect::<Result<_, sqlx::Error>>()?)
    }
}
