//! The statements of relays, and of operators of the outbox.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use sqlx::Row as _;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use uuid::Uuid;

use super::Sqlite;
use super::outbox_sql::LANE;
use super::relays_sql::{
    ALIVE, BURY, DEAD, DELETE, DISCARD, FREE, GIVE, GONE, HIGHEST, LEAVE, READ, RELAYS, RENEW, REPLAY, RETRY, STATS,
    TAKE,
};
use super::sql::{duration, millis, time};
use crate::outbox::{StagedMessage, envelope};
use crate::store::{
    DeadOutgoing, LaneLeases, OutboxFound, OutboxId, OutboxRead, OutboxRow, OutboxStats, Page, PublishFailure, RowRef,
    StoreError, error_text,
};

/// The most bytes of payloads and headers that one read brings. The file has one connection for reading, and workers wait for
/// it to look for due rows and to find out whether the database answers.
const AT_ONCE: u64 = 8 * 1024 * 1024;

type Query<'q> = sqlx::query::Query<'q, sqlx::Sqlite, SqliteArguments>;

fn lane(row: &SqliteRow) -> Result<u8, sqlx::Error> {
    Ok(u8::try_from(row.try_get::<i64, _>("lane")?).unwrap_or_default())
}

fn message(row: &SqliteRow) -> Result<StagedMessage, sqlx::Error> {
    let message = envelope::open(
        row.try_get("destination")?,
        row.try_get("key")?,
        row.try_get("envelope")?,
        row.try_get("payload")?,
    );
    let attempts: u32 = row.try_get("attempts")?;
    Ok(StagedMessage::new(row.try_get("message_id")?, message)
        .with_staged_at(time(row.try_get("created_at")?))
        .with_attempt(attempts.saturating_add(1)))
}

impl Sqlite {
    fn of<'q>(&self, text: &str, outbox: OutboxId) -> Query<'q> {
        sqlx::query(self.prefix.sql(text)).bind(outbox.number)
    }

    fn of_row<'q>(&self, text: &str, outbox: OutboxId, token: Uuid, row: RowRef) -> Query<'q> {
        self.of(text, outbox).bind(token).bind(row.lane).bind(row.id).bind(row.message_id)
    }

    pub(super) async fn renew(&self, outbox: OutboxId, token: Uuid, lease: Duration) -> Result<LaneLeases, StoreError> {
        let lease = millis(lease);
        self.in_transaction(async |store, txn| {
            store.of(GONE, outbox).execute(txn.connection()).await?;
            store.of(ALIVE, outbox).bind(token).bind(lease).execute(txn.connection()).await?;
            let held = store.of(RENEW, outbox).bind(token).bind(lease).fetch_all(txn.connection()).await?;
            let relays = store.of(RELAYS, outbox).fetch_one(txn.connection()).await?.try_get(0)?;
            Ok(LaneLeases { held: held.iter().map(lane).collect::<Result<_, _>>()?, relays })
        })
        .await
    }

    pub(super) async fn take_free(
        &self,
        outbox: OutboxId,
        token: Uuid,
        lease: Duration,
        limit: u32,
    ) -> Result<Vec<u8>, StoreError> {
        // A relay that stands by asks each second, and must not wait for the writer, nor keep it from handlers.
        if self.count(FREE, outbox).await? == 0 {
            return Ok(Vec::new());
        }
        let mut connection = self.file.writer().await?;
        let query = self.of(TAKE, outbox).bind(token).bind(millis(lease)).bind(limit);
        let rows = query.fetch_all(connection.raw()).await.map_err(|error| self.file.fault(error))?;
        connection.give_back();
        rows.iter().map(lane).collect::<Result<_, _>>().map_err(|error| self.file.fault(error))
    }

    pub(super) async fn give(&self, outbox: OutboxId, token: Uuid, lanes: Option<&[u8]>) -> Result<(), StoreError> {
        let which = lanes.map(|lanes| format!("{lanes:?}"));
        self.in_transaction(async |store, txn| {
            if which.is_none() {
                store.of(LEAVE, outbox).bind(token).execute(txn.connection()).await?;
            }
            store.of(GIVE, outbox).bind(token).bind(which).execute(txn.connection()).await?;
            Ok(())
        })
        .await
    }

    /// The file has one writer, so ids are in the order of commits, and no row appears below a floor.
    pub(super) async fn read_lanes(&self, outbox: OutboxId, read: OutboxRead<'_>) -> Result<OutboxFound, StoreError> {
        let OutboxRead { lanes, blocked, known, bytes, .. } = read;
        let bytes = bytes.min(AT_ONCE);
        let known = format!("{known:?}");
        let blocked = blocked.iter().map(|key| format!("\"{}\"", hex::encode_upper(key.as_bytes())));
        let blocked = format!("[{}]", blocked.collect::<Vec<_>>().join(","));
        let mut reader = self.file.reader().await?;
        let (mut found, mut cut, mut highest) = (Vec::new(), Vec::new(), 0);
        for look in lanes {
            // Before the rows: what is committed between the two is above it, and found.
            let query = self.of(HIGHEST, outbox).bind(look.lane);
            let last = query.fetch_optional(&mut reader.connection).await;
            let last: Result<i64, _> = last.and_then(|row| row.map_or(Ok(0), |row| row.try_get("id")));
            highest = last.map_err(|error| self.file.fault(error))?.max(highest);
            let query =
                self.of(READ, outbox).bind(look.lane).bind(look.floor).bind(look.limit).bind(&blocked).bind(&known);
            let mut rows = query.fetch(&mut reader.connection);
            let mut size = 0_u64;
            // One after another, because a row is as large as its payload and its headers.
            while let Some(row) = rows.try_next().await.map_err(|error| self.file.fault(error))? {
                size += row.try_get::<i64, _>("size").map_err(|error| self.file.fault(error))?.unsigned_abs();
                if size > bytes && found.last().is_some_and(|last: &OutboxRow| last.lane == look.lane) {
                    cut.push(look.lane);
                    break;
                }
                found.push(outbox_row(&row).map_err(|error| self.file.fault(error))?);
            }
        }
        reader.give_back();
        Ok(OutboxFound { rows: found, cut, mark: Some(0), highest, open: Vec::new() })
    }

    pub(super) async fn delete(&self, outbox: OutboxId, token: Uuid, published: &[RowRef]) -> Result<u64, StoreError> {
        self.in_transaction(async |store, txn| {
            let mut deleted = 0;
            for row in published {
                let query = store.of_row(DELETE, outbox, token, *row);
                deleted += query.execute(txn.connection()).await?.rows_affected();
            }
            Ok(deleted)
        })
        .await
    }

    pub(super) async fn record(
        &self,
        outbox: OutboxId,
        token: Uuid,
        failures: &[PublishFailure],
    ) -> Result<(), StoreError> {
        self.in_transaction(async |store, txn| {
            for PublishFailure { row, attempts, next, error } in failures {
                let of = |text| store.of_row(text, outbox, token, *row);
                match next {
                    Some(due) => {
                        of(RETRY)
                            .bind(millis(*due))
                            .bind(error_text(error))
                            .bind(*attempts)
                            .execute(txn.connection())
                            .await?;
                    }
                    None => {
                        of(BURY).bind(error_text(error)).bind(*attempts).execute(txn.connection()).await?;
                        of(DELETE).execute(txn.connection()).await?;
                    }
                }
            }
            Ok(())
        })
        .await
    }

    pub(super) async fn alive(&self, outbox: OutboxId) -> Result<u32, StoreError> {
        self.count(RELAYS, outbox).await
    }

    /// Returns the number that a statement reads, without the writer.
    async fn count(&self, text: &str, outbox: OutboxId) -> Result<u32, StoreError> {
        let mut reader = self.file.reader().await?;
        let read = async { self.of(text, outbox).fetch_one(&mut reader.connection).await?.try_get(0) };
        let count = read.await.map_err(|error| self.file.fault(error))?;
        reader.give_back();
        Ok(count)
    }

    pub(super) async fn level(&self, outbox: OutboxId, limit: u64) -> Result<OutboxStats, StoreError> {
        let mut reader = self.file.reader().await?;
        let read = async {
            let query = self.of(STATS, outbox).bind(i64::try_from(limit).unwrap_or(i64::MAX));
            let row = query.fetch_one(&mut reader.connection).await?;
            let count = |at: usize| row.try_get::<i64, _>(at).map(i64::unsigned_abs);
            let oldest = row.try_get::<Option<i64>, _>(1)?.map(duration);
            Ok(OutboxStats { waiting: count(0)?, oldest, dead: count(2)?, relays: row.try_get(3)? })
        };
        let stats = read.await.map_err(|error| self.file.fault(error))?;
        reader.give_back();
        Ok(stats)
    }

    pub(super) async fn dead_letters(&self, outbox: OutboxId, page: Page) -> Result<Vec<DeadOutgoing>, StoreError> {
        let mut reader = self.file.reader().await?;
        let query = self.of(DEAD, outbox).bind(page.before.unwrap_or(i64::MAX)).bind(page.limit);
        let dead = |row: &SqliteRow| {
            Ok(DeadOutgoing {
                id: row.try_get("id")?,
                message: message(row)?,
                attempts: row.try_get("attempts")?,
                error: row.try_get("error")?,
                died_at: time(row.try_get("died_at")?),
            })
        };
        let rows = query.fetch_all(&mut reader.connection).await;
        let rows = rows.and_then(|rows| rows.iter().map(dead).collect()).map_err(|error| self.file.fault(error))?;
        reader.give_back();
        Ok(rows)
    }

    pub(super) async fn replay_dead(&self, outbox: OutboxId, id: i64) -> Result<bool, StoreError> {
        self.in_transaction(async |store, txn| {
            store.of(REPLAY, outbox).bind(id).execute(txn.connection()).await?;
            Ok(store.of(DISCARD, outbox).bind(id).execute(txn.connection()).await?.rows_affected() > 0)
        })
        .await
    }

    pub(super) async fn discard_dead(&self, outbox: OutboxId, id: i64) -> Result<bool, StoreError> {
        Ok(self.change(self.of(DISCARD, outbox).bind(id)).await? > 0)
    }
}

fn outbox_row(row: &SqliteRow) -> Result<OutboxRow, sqlx::Error> {
    Ok(OutboxRow {
        id: row.try_get("id")?,
        lane: lane(row)?,
        message: message(row)?,
        age: duration(row.try_get("age")?),
        due: duration(row.try_get("due")?),
    })
}

/// The lane of an outbox, which is made with it.
pub(super) const LANES: &str = r#"
INSERT INTO "idem_outbox_lanes" (outbox_id, lane) VALUES (?1, ?2) ON CONFLICT DO NOTHING"#;

/// Creates the lane of an outbox.
pub(super) async fn make_lane(
    store: &Sqlite,
    connection: &mut sqlx::SqliteConnection,
    outbox: OutboxId,
) -> Result<(), sqlx::Error> {
    store.of(LANES, outbox).bind(LANE).execute(connection).await.map(drop)
}
