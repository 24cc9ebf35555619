//! The outbox: messages are staged in memory, and written in front of COMMIT; relays and operators read and delete them.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use uuid::Uuid;

use super::answer::of_operator;
use super::handle::Query;
use super::outbox_sql::{
    BURY, BY_ID, DEAD, DELETE, DISCARD, EXCEPT, FIND, HIGHEST, IN_ORDER, NOTE, OF_KEYS, OURS, READ, REGISTER, REPLAY,
    RETRY, STAGE, STATS, TO_DESTINATION, UNREAD,
};
use super::sql::{self, duration, in_hex, json, millis, time};
use super::{Sqlite, Txn};
use crate::Error;
use crate::outbox::{StagedMessage, envelope};
use crate::store::sql::statements;
use crate::store::{
    Answer, By, DeadOutgoing, LeaseAnswer, LeaseRequest, LocalMessage, NUMBERS, OutboxFilter, OutboxFound, OutboxId,
    OutboxMark, OutboxRead, OutboxRow, OutboxRows, OutboxStats, Page, PublishFailure, RowRef, StoreError, UnreadOutbox,
    error_text, number, outgoing_action,
};

/// The most bytes of payloads and headers that one read brings. The file has one connection for reading, and workers wait for
/// it to look for due rows and to find out whether the database answers.
const AT_ONCE: u64 = 8 * 1024 * 1024;

/// How many rows one statement inserts: SQLite binds at most 32,766 values.
const INSERTED: usize = 4000;

fn message(row: &SqliteRow) -> sqlx::Result<StagedMessage> {
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
pub(super) async fn intern(connection: &mut SqliteConnection, name: &str) -> sqlx::Result<OutboxId> {
    for attempt in 0..=NUMBERS {
        let find = sqlx::query_as(sql::filled(FIND)).bind(name);
        if let Some((number, namespace)) = find.fetch_optional(&mut *connection).await? {
            return Ok(OutboxId { number, namespace });
        }
        let register = sql::query(REGISTER).bind(name).bind(Uuid::new_v4());
        register.bind(number(&[name], attempt)).execute(&mut *connection).await?;
    }
    Err(sqlx::Error::RowNotFound)
}

/// Inserts messages in their order.
pub(super) async fn insert(
    connection: &mut SqliteConnection,
    messages: &[(OutboxId, StagedMessage)],
) -> sqlx::Result<()> {
    // Many with one statement, so that none of them or all are inserted, even if the caller's future is dropped.
    for messages in messages.chunks(INSERTED) {
        let values = vec!["(?, ?, {now}, ?, ?, ?, ?)"; messages.len()].join(", ");
        // Each of another length is another text.
        let mut query = sql::query(&format!("{STAGE}{values}")).persistent(messages.len() == 1);
        for (outbox, message) in messages {
            query = query.bind(outbox.number).bind(message.id()).bind(message.to());
            query = query.bind(message.key().map_or(&[][..], |key| key.as_bytes()));
            query = query.bind(envelope::seal(message.message())).bind(message.payload().as_ref());
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

impl OutboxRows for Sqlite {
    async fn register_outbox(&self, name: &str) -> Result<OutboxId, Error> {
        let intern = async |txn: &mut Txn| intern(txn.connection(), name).await;
        let failed = |fault: StoreError| Error::database(format!("could not register the outbox {name:?}"), fault);
        self.in_transaction(intern).await.map_err(failed)
    }

    fn stage(&self, txn: &mut Txn, outbox: OutboxId, outgoing: Vec<StagedMessage>, local: Vec<LocalMessage>) {
        txn.staged.extend(outgoing.into_iter().map(|message| (outbox, message)));
        txn.local.extend(local);
    }

    async fn lease_outbox(&self, outbox: OutboxId, token: Uuid, request: LeaseRequest) -> Answer<LeaseAnswer> {
        let LeaseRequest::Hold(lease) = request else {
            let changed = match request {
                LeaseRequest::Release => self.change(of(statements::RELEASE, outbox).bind(token)).await?.max(1),
                _ => self.change(of(statements::SHOW, outbox)).await?,
            };
            return Ok(if changed > 0 { LeaseAnswer::Held } else { LeaseAnswer::Unknown });
        };
        // A relay that stands by asks each second, and must not wait for the writer, nor keep it from handlers.
        let free = of(statements::FREE, outbox).bind(token);
        match self.read_all(free, |row| row.try_get::<bool, _>(0)).await?.first() {
            None => Ok(LeaseAnswer::Unknown),
            Some(false) => Ok(LeaseAnswer::Other),
            Some(_) => {
                let held = self.change(of(statements::LEASE, outbox).bind(token).bind(millis(lease))).await?;
                Ok(if held > 0 { LeaseAnswer::Held } else { LeaseAnswer::Other })
            }
        }
    }

    /// The file has one writer, so ids are in the order of commits, and no row appears in front of one that was read.
    async fn read_outbox(&self, outbox: OutboxId, read: &OutboxRead) -> Answer<OutboxFound> {
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
        let read = async |reader: &mut SqliteConnection| {
            // Before the messages: what is committed between the two is above it, and found.
            let highest: i64 = of(HIGHEST, outbox).fetch_one(&mut *reader).await?.try_get(0)?;
            let query = of(&text, outbox).bind(from).bind(to).bind(known).bind(limit).bind(first);
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
                found.push(OutboxRow {
                    id: row.try_get("id")?,
                    message: message(&row)?,
                    age: duration(row.try_get("age")?),
                    due: duration(row.try_get("due")?),
                });
            }
            Ok((found, is_cut, highest))
        };
        let (rows, is_cut, highest) = self.read(read).await?;
        let is_cut = is_cut || rows.len() >= limit as usize;
        Ok(OutboxFound { rows, is_cut, snapshot: None, mark: Some(OutboxMark { number: 0, highest }) })
    }

    async fn delete_published(&self, outbox: OutboxId, token: Uuid, published: &[RowRef]) -> Answer<u64> {
        self.in_transaction(async |txn| {
            let mut deleted = 0;
            for row in published {
                let query = of_row(DELETE, outbox, token, *row);
                deleted += query.execute(txn.connection()).await?.rows_affected();
            }
            Ok(deleted)
        })
        .await
    }

    async fn record_failures(&self, outbox: OutboxId, token: Uuid, failures: &[PublishFailure]) -> Answer<()> {
        self.in_transaction(async |txn| {
            for PublishFailure { row, attempts, next, error } in failures {
                let text = if next.is_some() { RETRY } else { BURY };
                let failed = of_row(text, outbox, token, *row).bind(error_text(error)).bind(*attempts);
                match next {
                    Some(due) => failed.bind(millis(*due)).execute(txn.connection()).await?,
                    None => {
                        failed.execute(txn.connection()).await?;
                        of_row(DELETE, outbox, token, *row).execute(txn.connection()).await?
                    }
                };
            }
            Ok(())
        })
        .await
    }

    async fn outbox_stats(&self, outbox: OutboxId, limit: u64) -> Answer<OutboxStats> {
        let query = of(STATS, outbox).bind(i64::try_from(limit).unwrap_or(i64::MAX));
        let (waiting, oldest, dead, seen): (i64, Option<i64>, i64, Option<i64>) = self.read_one(query).await?;
        let ([waiting, dead], [oldest, relay_seen]) =
            ([waiting, dead].map(i64::unsigned_abs), [oldest, seen].map(|age| age.map(duration)));
        Ok(OutboxStats { waiting, oldest, dead, relay_seen })
    }

    async fn unread_outboxes(&self, patience: Duration, limit: u64) -> Answer<Vec<UnreadOutbox>> {
        let unread = |row: &SqliteRow| {
            let waiting = row.try_get::<i64, _>(1)?.unsigned_abs();
            Ok(UnreadOutbox { name: row.try_get(0)?, waiting, oldest: duration(row.try_get(2)?) })
        };
        let query = sql::query(UNREAD).bind(millis(patience)).bind(i64::try_from(limit).unwrap_or(i64::MAX));
        self.read_all(query, unread).await
    }

    async fn dead_outgoing(&self, outbox: OutboxId, page: Page) -> Answer<Vec<DeadOutgoing>> {
        let dead = |row: &SqliteRow| {
            Ok(DeadOutgoing {
                id: row.try_get("id")?,
                message: message(row)?,
                attempts: row.try_get("attempts")?,
                error: row.try_get("error")?,
                died_at: time(row.try_get("died_at")?),
            })
        };
        let query = of(DEAD, outbox).bind(page.before.unwrap_or(i64::MAX)).bind(page.limit);
        self.read_all(query, dead).await
    }

    async fn remove_dead_outgoing(&self, outbox: OutboxId, ids: &[i64], again: bool, by: &By) -> Answer<Vec<i64>> {
        let remove = async |txn: &mut Txn| {
            let note = of(NOTE, outbox).bind(json(ids)).bind(by.command).bind(outgoing_action(again)).bind(&by.actor);
            note.execute(txn.connection()).await?;
            if again {
                of(REPLAY, outbox).bind(json(ids)).execute(txn.connection()).await?;
            }
            let gone = of(DISCARD, outbox).bind(json(ids)).fetch_all(txn.connection()).await?;
            let mut gone = gone.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<Vec<i64>>>()?;
            gone.sort_unstable();
            Ok(gone)
        };
        self.in_transaction(remove).await.map_err(of_operator)
    }
}

fn of<'q>(text: &str, outbox: OutboxId) -> Query<'q> {
    sql::query(text).bind(outbox.number)
}

fn of_row<'q>(text: &str, outbox: OutboxId, token: Uuid, row: RowRef) -> Query<'q> {
    of(&text.replace("{ours}", OURS), outbox).bind(token).bind(row.id).bind(row.message_id)
}
