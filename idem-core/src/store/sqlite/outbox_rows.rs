//! The outbox: messages are staged in memory, and written in front of COMMIT; relays and operators read and delete them.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use uuid::Uuid;

use super::handle::Query;
use super::outbox_sql::{
    BURY, BY_ID, DEAD, DELETE, DISCARD, EXCEPT, FIND, FREE, HIGHEST, IN_ORDER, LEASE, NewRow, OF_KEYS, READ, REGISTER,
    RELEASE, REPLAY, RETRY, SHOW, STATS, TO_DESTINATION, UNREAD,
};
use super::sql::{duration, in_hex, json, millis, time};
use super::{Sqlite, Txn};
use crate::Error;
use crate::outbox::{StagedMessage, envelope};
use crate::store::{
    DeadOutgoing, LeaseAnswer, LeaseRequest, LocalMessage, NUMBERS, OutboxFilter, OutboxFound, OutboxId, OutboxMark,
    OutboxRead, OutboxRow, OutboxRows, OutboxStats, Page, PublishFailure, RowRef, StoreError, UnreadOutbox, error_text,
    number,
};

/// The most bytes of payloads and headers that one read brings. The file has one connection for reading, and workers wait for
/// it to look for due rows and to find out whether the database answers.
const AT_ONCE: u64 = 8 * 1024 * 1024;

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

/// Returns the row of an outbox, which is made here if there is none.
pub(super) async fn intern(
    store: &Sqlite,
    connection: &mut SqliteConnection,
    name: &str,
) -> Result<OutboxId, sqlx::Error> {
    let find = || sqlx::query_as(store.prefix.sql(FIND)).bind(name);
    for attempt in 0..NUMBERS {
        if let Some((number, namespace)) = find().fetch_optional(&mut *connection).await? {
            return Ok(OutboxId { number, namespace });
        }
        let register = store.query(REGISTER).bind(name).bind(Uuid::new_v4());
        register.bind(number(&[name], attempt)).execute(&mut *connection).await?;
    }
    let (number, namespace) = find().fetch_one(&mut *connection).await?;
    Ok(OutboxId { number, namespace })
}

impl OutboxRows for Sqlite {
    async fn register_outbox(&self, name: &str) -> Result<OutboxId, Error> {
        let failed = |fault: StoreError| Error::database(format!("could not register the outbox {name:?}"), fault);
        let mut connection = self.file.writer().await.map_err(failed)?;
        let outbox = intern(self, connection.raw(), name).await.map_err(|error| failed(self.file.fault(error)))?;
        connection.give_back();
        Ok(outbox)
    }

    fn stage(&self, txn: &mut Txn, outbox: OutboxId, outgoing: Vec<StagedMessage>, local: Vec<LocalMessage>) {
        txn.stage(outgoing.into_iter().map(|message| NewRow { outbox, message }), local);
    }

    async fn lease_outbox(
        &self,
        outbox: OutboxId,
        token: Uuid,
        request: LeaseRequest,
    ) -> Result<LeaseAnswer, StoreError> {
        let LeaseRequest::Hold(lease) = request else {
            let changed = match request {
                LeaseRequest::Release => self.change(self.of(RELEASE, outbox).bind(token)).await?.max(1),
                _ => self.change(self.of(SHOW, outbox)).await?,
            };
            return Ok(if changed > 0 { LeaseAnswer::Held } else { LeaseAnswer::Unknown });
        };
        // A relay that stands by asks each second, and must not wait for the writer, nor keep it from handlers.
        let found: Option<i64> = self.read_one(self.of(FREE, outbox).bind(token), |row| row.try_get(0)).await?;
        match found {
            None => Ok(LeaseAnswer::Unknown),
            Some(1) => Ok(LeaseAnswer::Other),
            Some(_) => {
                let held = self.change(self.of(LEASE, outbox).bind(token).bind(millis(lease))).await?;
                Ok(if held > 0 { LeaseAnswer::Held } else { LeaseAnswer::Other })
            }
        }
    }

    /// The file has one writer, so ids are in the order of commits, and no row appears in front of one that was read.
    async fn read_outbox(&self, outbox: OutboxId, read: &OutboxRead) -> Result<OutboxFound, StoreError> {
        let OutboxRead { from, to, limit, bytes, .. } = *read;
        let bytes = bytes.min(AT_ONCE);
        let known = json(&read.known);
        let (condition, first, second) = match &read.filter {
            OutboxFilter::Except { keys, destinations } => (EXCEPT, in_hex(keys), json(destinations)),
            OutboxFilter::Keys(keys) => (OF_KEYS, in_hex(keys), String::new()),
            OutboxFilter::Destination(to) => (TO_DESTINATION, to.to_owned(), String::new()),
            OutboxFilter::Ids(ids) => (BY_ID, json(ids), String::new()),
        };
        let text = format!("{READ}{condition}{IN_ORDER}");
        let read = async |store: &Self, reader: &mut SqliteConnection| {
            // Before the messages: what is committed between the two is above it, and found.
            let highest: i64 = store.of(HIGHEST, outbox).fetch_one(&mut *reader).await?.try_get(0)?;
            let query = store.of(&text, outbox).bind(from).bind(to).bind(known).bind(limit).bind(first);
            let query = if condition == EXCEPT { query.bind(second) } else { query };
            let mut rows = query.fetch(reader);
            let (mut found, mut size, mut is_cut) = (Vec::new(), 0_u64, false);
            // One after another, because a row is as large as its payload and its headers.
            while let Some(row) = rows.try_next().await? {
                size += row.try_get::<i64, _>("size")?.unsigned_abs();
                is_cut = size > bytes && !found.is_empty();
                if is_cut {
                    break;
                }
                found.push(outbox_row(&row)?);
            }
            Ok((found, is_cut, highest))
        };
        let (rows, is_cut, highest) = self.read(read).await?;
        let is_cut = is_cut || rows.len() >= limit as usize;
        Ok(OutboxFound { rows, is_cut, snapshot: None, mark: Some(OutboxMark { number: 0, highest }) })
    }

    async fn delete_published(&self, outbox: OutboxId, token: Uuid, published: &[RowRef]) -> Result<u64, StoreError> {
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

    async fn record_failures(
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

    async fn outbox_stats(&self, outbox: OutboxId, limit: u64) -> Result<OutboxStats, StoreError> {
        let stats = |row: &SqliteRow| {
            let count = |at: usize| row.try_get::<i64, _>(at).map(i64::unsigned_abs);
            let age = |at: usize| row.try_get::<Option<i64>, _>(at).map(|age| age.map(duration));
            Ok(OutboxStats { waiting: count(0)?, oldest: age(1)?, dead: count(2)?, relay_seen: age(3)? })
        };
        self.read_one(self.of(STATS, outbox).bind(i64::try_from(limit).unwrap_or(i64::MAX)), stats).await
    }

    async fn unread_outboxes(&self, patience: Duration, limit: u64) -> Result<Vec<UnreadOutbox>, StoreError> {
        let unread = |row: &SqliteRow| {
            let waiting = row.try_get::<i64, _>(1)?.unsigned_abs();
            Ok(UnreadOutbox { name: row.try_get(0)?, waiting, oldest: duration(row.try_get(2)?) })
        };
        let query = self.query(UNREAD).bind(millis(patience)).bind(i64::try_from(limit).unwrap_or(i64::MAX));
        self.read_all(query, unread).await
    }

    async fn dead_outgoing(&self, outbox: OutboxId, page: Page) -> Result<Vec<DeadOutgoing>, StoreError> {
        let dead = |row: &SqliteRow| {
            Ok(DeadOutgoing {
                id: row.try_get("id")?,
                message: message(row)?,
                attempts: row.try_get("attempts")?,
                error: row.try_get("error")?,
                died_at: time(row.try_get("died_at")?),
            })
        };
        let query = self.of(DEAD, outbox).bind(page.before.unwrap_or(i64::MAX)).bind(page.limit);
        self.read_all(query, dead).await
    }

    async fn remove_dead_outgoing(&self, outbox: OutboxId, id: i64, again: bool) -> Result<bool, StoreError> {
        let remove = async |store: &Self, txn: &mut Txn| {
            if again {
                store.of(REPLAY, outbox).bind(id).execute(txn.connection()).await?;
            }
            Ok(store.of(DISCARD, outbox).bind(id).execute(txn.connection()).await?.rows_affected() > 0)
        };
        self.in_transaction(remove).await
    }
}

impl Sqlite {
    fn of<'q>(&self, text: &str, outbox: OutboxId) -> Query<'q> {
        self.query(text).bind(outbox.number)
    }

    fn of_row<'q>(&self, text: &str, outbox: OutboxId, token: Uuid, row: RowRef) -> Query<'q> {
        self.of(text, outbox).bind(token).bind(row.id).bind(row.message_id)
    }
}

fn outbox_row(row: &SqliteRow) -> Result<OutboxRow, sqlx::Error> {
    Ok(OutboxRow {
        id: row.try_get("id")?,
        message: message(row)?,
        age: duration(row.try_get("age")?),
        due: duration(row.try_get("due")?),
    })
}
