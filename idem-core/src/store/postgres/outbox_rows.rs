//! The outbox: messages are staged in memory, and written in front of COMMIT; relays and operators read and delete them.

use std::time::{Duration, Instant};

use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::outbox::{StagedMessage, envelope};
use crate::store::sql::statements;
use crate::store::{
    Answer, By, DeadOutgoing, LeaseAnswer, LeaseRequest, LocalMessage, NUMBERS, OutboxFilter, OutboxFound, OutboxId,
    OutboxMark, OutboxRead, OutboxRow, OutboxRows, OutboxSnapshot, OutboxStats, Page, PublishFailure, RowRef,
    StoreError, UnreadOutbox, error_text, number, outgoing_action,
};
use crate::{Error, Key};

use super::answer::About;
use super::rows::{self, duration, each, interval, secs, time};
use super::{Postgres, Txn, outbox_sql};

/// How many ids one statement counts, or twice as many as a quick one before it. Each then ends in time although rows were deleted
/// that an old snapshot keeps, and those of relays run between them.
const COUNTED: i64 = 1_000_000;
const QUICK: Duration = Duration::from_millis(100);

fn bounded(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Decodes the columns that waiting and dead messages have in common.
fn message(row: &PgRow) -> Result<StagedMessage, sqlx::Error> {
    let envelope: &str = row.try_get(5)?;
    let message = envelope::open(row.try_get(3)?, row.try_get(4)?, envelope.as_bytes(), row.try_get(6)?);
    let attempts = u32::try_from(row.try_get::<i32, _>(2)?).unwrap_or(0);
    Ok(StagedMessage::new(row.try_get(1)?, message)
        .with_staged_at(time(row.try_get(7)?))
        .with_attempt(attempts.saturating_add(1)))
}

impl OutboxRows for Postgres {
    async fn register_outbox(&self, name: &str) -> Result<OutboxId, Error> {
        let registered = async {
            for attempt in 0..2 * NUMBERS {
                // Twice each: another process may insert it after the statement has looked for it.
                let id = number(&[name], attempt / 2);
                let query = self.query(outbox_sql::REGISTER).bind(name).bind(id);
                if let Some(row) = self.ask(query).await?.first() {
                    return Ok(OutboxId { number: row.try_get(0)?, namespace: row.try_get(1)? });
                }
            }
            Err(StoreError::Unavailable("an outbox was deleted while it was registered".into()))
        };
        registered.await.map_err(|fault| Error::database(format!("could not register the outbox {name:?}"), fault))
    }

    fn stage(&self, txn: &mut Txn, outbox: OutboxId, outgoing: Vec<StagedMessage>, local: Vec<LocalMessage>) {
        txn.writes.staged.extend(outgoing.into_iter().map(|message| (outbox, message)));
        txn.writes.local.extend(local);
    }

    async fn lease_outbox(&self, outbox: OutboxId, token: Uuid, request: LeaseRequest) -> Answer<LeaseAnswer> {
        let of = |text| self.shared(text).bind(outbox.number);
        let is_done = match request {
            LeaseRequest::Release => self.ask(of(statements::RELEASE).bind(token)).await.map(|_| true)?,
            LeaseRequest::Show => !self.ask(of(statements::SHOW)).await?.is_empty(),
            LeaseRequest::Hold(lease) => {
                let held = self.ask(of(statements::LEASE).bind(token).bind(interval(lease))).await?;
                if held.is_empty() && !self.ask(of(statements::FREE).bind(token)).await?.is_empty() {
                    return Ok(LeaseAnswer::Other);
                }
                !held.is_empty()
            }
        };
        Ok(if is_done { LeaseAnswer::Held } else { LeaseAnswer::Unknown })
    }

    async fn read_outbox(&self, outbox: OutboxId, read: &OutboxRead) -> Answer<OutboxFound> {
        let OutboxRead { from, to, limit, bytes, marks, .. } = *read;
        let table = self.0.facts.table("outbox_messages");
        let condition = match read.filter {
            OutboxFilter::Except { .. } => outbox_sql::EXCEPT,
            OutboxFilter::Keys(_) => outbox_sql::OF_KEYS,
            OutboxFilter::Destination(_) => outbox_sql::TO_DESTINATION,
            OutboxFilter::Ids(_) => outbox_sql::BY_ID,
        };
        let query =
            self.query(&outbox_sql::read(condition)).bind(outbox.number).bind(from).bind(to).bind(&read.known[..]);
        let query = query.bind(i64::from(limit)).bind(bounded(bytes)).bind(&table);
        let keys = |keys: &[Key]| keys.iter().map(|key| key.as_bytes().to_vec()).collect::<Vec<_>>();
        let query = match &read.filter {
            OutboxFilter::Except { keys: except, destinations } => query.bind(keys(except)).bind(&destinations[..]),
            OutboxFilter::Keys(only) => query.bind(keys(only)),
            OutboxFilter::Destination(to) => query.bind(to.as_str()),
            OutboxFilter::Ids(ids) => query.bind(&ids[..]),
        };
        let rows = self.ask_long(query).await?;
        let Some(first) = rows.first() else { return Err(StoreError::Unavailable("a read had no answer".into())) };
        let place = first.try_get::<Option<i64>, _>(13)?.unwrap_or_default();
        let snapshot = OutboxSnapshot { open: first.try_get(11)?, end: first.try_get(12)?, table: place };
        let row = |row: &PgRow| {
            Ok(OutboxRow {
                id: row.try_get(0)?,
                message: message(row)?,
                age: duration(row.try_get(8)?),
                due: duration(row.try_get::<Option<i64>, _>(9)?.unwrap_or(0)),
            })
        };
        // Without a message there is one row, which has none.
        let some = |row: &&PgRow| !matches!(row.try_get::<Option<i64>, _>(0), Ok(None));
        let is_part = rows.last().is_some_and(|last| matches!(last.try_get(10), Ok(true)));
        let rows = rows.iter().filter(some).map(row).collect::<Result<Vec<_>, sqlx::Error>>()?;
        let is_cut = is_part || rows.len() >= limit as usize;
        let mark = if marks { Some(self.draw_mark(&table).await?) } else { None };
        Ok(OutboxFound { rows, is_cut, snapshot: Some(snapshot), mark })
    }

    async fn delete_published(&self, outbox: OutboxId, token: Uuid, published: &[RowRef]) -> Answer<u64> {
        let query = self.query(&outbox_sql::delete()).bind(outbox.number).bind(token);
        let query = query.bind(each(published, |row| row.id)).bind(each(published, |row| row.message_id));
        let rows = self.ask_long(query).await?;
        let (deleted,): (i64,) = rows::one(&rows)?;
        Ok(deleted.unsigned_abs())
    }

    async fn record_failures(&self, outbox: OutboxId, token: Uuid, failures: &[PublishFailure]) -> Answer<()> {
        let query = self.query(&outbox_sql::record()).bind(outbox.number).bind(token);
        let query = query.bind(each(failures, |failure| failure.row.id));
        let query = query.bind(each(failures, |failure| failure.row.message_id));
        let query = query.bind(each(failures, |failure| failure.next.map(secs)));
        let query = query.bind(each(failures, |failure| error_text(&failure.error).into_owned().into_bytes()));
        let query = query.bind(each(failures, |failure| rows::number(failure.attempts)));
        self.ask_long(query).await.map(drop)
    }

    async fn outbox_stats(&self, outbox: OutboxId, limit: u64) -> Answer<OutboxStats> {
        let mut stats = OutboxStats::default();
        let query = self.query(outbox_sql::STATS).bind(outbox.number).bind(bounded(limit));
        let rows = if limit == 0 { self.ask(query).await? } else { self.ask_long(query).await? };
        let (dead, seen): (i64, Option<i64>) = rows::one(&rows)?;
        (stats.dead, stats.relay_seen) = (dead.unsigned_abs(), seen.map(duration));
        if limit == 0 {
            return Ok(stats);
        }
        let highest = self.ask(self.query(outbox_sql::HIGHEST).bind(self.0.facts.table("outbox_messages"))).await?;
        let (highest,): (Option<i64>,) = rows::one(&highest)?;
        let highest = highest.unwrap_or(0);
        let (mut from, mut range) = (0, COUNTED);
        while stats.waiting < limit {
            let to = if from + range < highest { from + range } else { i64::MAX };
            let query = self.query(outbox_sql::WAITING).bind(outbox.number).bind(from).bind(to);
            let began = Instant::now();
            let rows = self.ask_long(query.bind(bounded(limit - stats.waiting))).await?;
            let (waiting, oldest): (i64, Option<i64>) = rows::one(&rows)?;
            stats.waiting += waiting.unsigned_abs();
            stats.oldest = stats.oldest.or(oldest.map(duration));
            if to == i64::MAX {
                break;
            }
            from = to + 1;
            range = if began.elapsed() < QUICK { range.saturating_mul(2) } else { COUNTED };
        }
        Ok(stats)
    }

    async fn unread_outboxes(&self, patience: Duration, limit: u64) -> Answer<Vec<UnreadOutbox>> {
        let query = self.query(outbox_sql::UNREAD).bind(secs(patience)).bind(bounded(limit));
        let unread = |row: &PgRow| {
            let waiting = row.try_get::<i64, _>(1)?.unsigned_abs();
            Ok(UnreadOutbox { name: row.try_get(0)?, waiting, oldest: duration(row.try_get(2)?) })
        };
        Ok(self.ask_long(query).await?.iter().map(unread).collect::<Result<_, sqlx::Error>>()?)
    }

    async fn dead_outgoing(&self, outbox: OutboxId, page: Page) -> Answer<Vec<DeadOutgoing>> {
        let query = self.query(&outbox_sql::dead()).bind(outbox.number).bind(page.before).bind(i64::from(page.limit));
        let dead = |row: &PgRow| {
            Ok(DeadOutgoing {
                id: row.try_get(0)?,
                message: message(row)?,
                attempts: u32::try_from(row.try_get::<i32, _>(2)?).unwrap_or(0),
                error: row.try_get(8)?,
                died_at: time(row.try_get(9)?),
            })
        };
        Ok(self.ask(query).await?.iter().map(dead).collect::<Result<_, sqlx::Error>>()?)
    }

    async fn remove_dead_outgoing(&self, outbox: OutboxId, ids: &[i64], again: bool, by: &By) -> Answer<Vec<i64>> {
        let query = self.query(outbox_sql::REMOVE_DEAD).bind(outbox.number).bind(ids).bind(again).bind(by.command);
        let query = query.bind(outgoing_action(again)).bind(error_text(&by.actor).as_ref());
        let rows = self.ask_about(About::Operator, query).await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, sqlx::Error>>()?)
    }
}

impl Postgres {
    async fn draw_mark(&self, table: &str) -> Answer<OutboxMark> {
        let rows = self.ask(self.query(&outbox_sql::mark()).bind(table)).await?;
        let (highest, number): (i64, i64) = rows::one(&rows)?;
        Ok(OutboxMark { number, highest })
    }
}
