//! Inbox rows: stored, taken, started, and what became of them.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::sql::{duration, ids, millis, rows};
use super::{Sqlite, Txn};
use crate::Reason;
use crate::store::{
    Fault, HandlerId, Identity, InboxRows, JUDGE_LEASES, Kind, Limit, MAX_BREAKS, MAX_STARTS, NewRow, Note, Row,
    Survey, envelope,
};

// ===== in a transaction =====

const INSERT: &str = r#"
INSERT INTO "idem_inbox_messages"
    (handler_id, key, fingerprint, payload, envelope, attempts, error, state, reason, created_at, due_at, died_at)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, CASE WHEN ?8 IS NULL THEN 'parked' ELSE 'dead' END, ?8,
    {now}, {now} + ?9, CASE WHEN ?8 IS NOT NULL THEN {now} END
WHERE true
ON CONFLICT (handler_id, key, fingerprint) DO UPDATE SET sightings = sightings + 1"#;

pub(super) async fn insert(store: &Sqlite, txn: &mut Txn, row: &NewRow<'_>) -> Result<(), Fault> {
    let query = sqlx::query(store.prefix.sql(INSERT))
        .bind(row.identity.handler.0)
        .bind(row.identity.key.as_bytes())
        .bind(row.identity.fingerprint.as_bytes())
        .bind(row.delivery.payload().as_ref())
        .bind(envelope::seal(row.delivery))
        .bind(row.attempts)
        .bind(row.error)
        .bind(row.state.err().map(Reason::as_str))
        .bind(row.state.map_or(0, millis));
    query.execute(txn.connection()).await.map(|_| ()).map_err(|error| store.file.fault_of_message(error))
}

pub(super) const SIGHT: &str = r#"
UPDATE "idem_inbox_messages" SET sightings = sightings + 1
WHERE handler_id = ?1 AND key = ?2 AND fingerprint = ?3 AND state = 'dead'"#;

pub(super) const REMOVE: &str = r#"DELETE FROM "idem_inbox_messages" WHERE id = ?1 AND token = ?2"#;

pub(super) async fn remove(store: &Sqlite, txn: &mut Txn, row: &Row) -> Result<bool, Fault> {
    let query = sqlx::query(store.prefix.sql(REMOVE)).bind(row.id).bind(row.token);
    let done = query.execute(txn.connection()).await.map_err(|error| store.file.fault_of_message(error))?;
    Ok(done.rows_affected() == 1)
}

const DATE: &str = r#"UPDATE "idem_processed_messages" SET processed_at = {now} WHERE handler_id = ?1 AND key = ?2"#;

// ===== committed by itself =====

pub(super) const SURVEY: &str = r#"
SELECT
    EXISTS (
        SELECT 1 FROM json_each(?1) AS h WHERE EXISTS (
            SELECT 1 FROM "idem_inbox_messages"
            WHERE handler_id = h.value AND state = 'parked' AND starts = 0 AND breaks <= 1 AND due_at <= {now}
        )
    ) AS ordinary,
    EXISTS (
        SELECT 1 FROM json_each(?1) AS h WHERE EXISTS (
            SELECT 1 FROM "idem_inbox_messages"
            WHERE handler_id = h.value AND state = 'parked' AND (starts >= 1 OR breaks >= 2) AND starts < ?2
                AND due_at <= {now}
        )
    ) AS suspect,
    EXISTS (
        SELECT 1 FROM json_each(?1) AS h WHERE EXISTS (
            SELECT 1 FROM "idem_inbox_messages"
            WHERE handler_id = h.value AND state = 'parked' AND (starts >= 1 OR breaks >= 2) AND starts >= ?2
                AND due_at < {now} - ?3
        )
    ) AS judge"#;

/// What a take is about to take, for how long that has been due, since RETURNING knows only what a row has become, and how
/// large it is. By the same indexes as the take, and not in one transaction with it, since a row that comes or goes
/// meanwhile is only missing in a histogram, or a little more than was meant.
const DUE: &str = r#"
SELECT m.id, {now} - m.due_at AS waited, length(m.payload) + length(m.envelope) AS bytes FROM json_each(?1) AS h CROSS JOIN "idem_inbox_messages" AS m
WHERE m.id IN (
    SELECT i.id FROM "idem_inbox_messages" AS i
    WHERE i.handler_id = h.value AND i.state = 'parked' AND i.starts = 0 AND i.breaks <= 1 AND i.due_at <= {now}
    ORDER BY i.due_at LIMIT ?2
)
ORDER BY m.due_at LIMIT ?2"#;

/// The inner query is run for each handler, so that the index finds its earliest rows, however many are due and whatever
/// other consumers have; SQLite has no LATERAL, and an `IN` list would sort all due rows.
macro_rules! take {
    ($starts:literal, $kind:literal) => {
        concat!(
            r#"
UPDATE "idem_inbox_messages" SET starts = starts + "#,
            $starts,
            r#", due_at = {now} + ?3, token = ?4
WHERE id IN (
    SELECT m.id FROM json_each(?1) AS h CROSS JOIN "idem_inbox_messages" AS m
    WHERE m.id IN (
        SELECT i.id FROM "idem_inbox_messages" AS i
        WHERE i.handler_id = h.value AND i.state = 'parked' AND "#,
            $kind,
            r#" AND i.due_at <= {now}
        ORDER BY i.due_at LIMIT ?2
    )
    ORDER BY m.due_at LIMIT ?2
)
RETURNING {row}"#
        )
    };
}
pub(super) const TAKE_ORDINARY: &str = take!("1", "i.starts = 0 AND i.breaks <= 1");
pub(super) const TAKE_SUSPECT: &str = take!("0", "(i.starts >= 1 OR i.breaks >= 2) AND i.starts < ?5");

pub(super) const TAKEN: &str = r#"SELECT {row} FROM "idem_inbox_messages" WHERE token = ?1"#;

/// `?3` the wait, `?4` the reason of its death if it dies, `?5` the error, `?6` `?7` what is added.
pub(super) const FAILED: &str = r#"
UPDATE "idem_inbox_messages" SET token = NULL, attempts = attempts + 1, starts = 0, breaks = 0, error = ?5,
    due_at = {now} + ?3, reason = ?4, state = CASE WHEN ?4 IS NULL THEN 'parked' ELSE 'dead' END,
    died_at = CASE WHEN ?4 IS NOT NULL THEN {now} END
WHERE id = ?1 AND token = ?2"#;

const BROKE: &str = r#"
UPDATE "idem_inbox_messages" SET token = NULL, starts = max(starts - 1, 0), breaks = breaks + 1, error = ?5,
    due_at = {now} + ?3, reason = CASE WHEN breaks + 1 >= ?6 THEN ?4 END,
    state = CASE WHEN breaks + 1 >= ?6 THEN 'dead' ELSE 'parked' END,
    died_at = CASE WHEN breaks + 1 >= ?6 THEN {now} END
WHERE id = ?1 AND token = ?2"#;

const GIVEN_BACK: &str = r#"
UPDATE "idem_inbox_messages" SET token = NULL, starts = max(starts - 1, 0), due_at = {now} + ?3
WHERE id = ?1 AND token = ?2"#;

/// `?3` no time, `?4` the starts with which it was reserved.
const RELEASED: &str = r#"
UPDATE "idem_inbox_messages" SET token = NULL, starts = ?4, due_at = {now} + ?3
WHERE id = ?1 AND token = ?2"#;

pub(super) const DEAD: &str = r#"
UPDATE "idem_inbox_messages" SET token = NULL, starts = 0, breaks = 0, error = ?5, due_at = {now} + ?3,
    reason = ?4, state = 'dead', died_at = {now}
WHERE id = ?1 AND token = ?2"#;

pub(super) const COUNT_START: &str = r#"
UPDATE "idem_inbox_messages" SET starts = ?3, due_at = {now} + ?4 WHERE id = ?1 AND token = ?2"#;

pub(super) const EXTEND: &str = r#"
UPDATE "idem_inbox_messages" SET due_at = {now} + ?3
WHERE id IN (SELECT value FROM json_each(?1)) AND token = ?2"#;

pub(super) const IS_PARKED: &str = r#"
SELECT 1 FROM "idem_inbox_messages" WHERE handler_id = ?1 AND key = ?2 AND fingerprint = ?3 AND state = 'parked'"#;

pub(super) const MAKE_DUE: &str = r#"
UPDATE "idem_inbox_messages" SET due_at = {now}
WHERE handler_id = ?1 AND key = ?2 AND fingerprint = ?3 AND state = 'parked'
    AND attempts = 0 AND starts = 0 AND breaks = 0 AND token IS NULL AND due_at > {now}"#;

const UNSTART: &str = r#"UPDATE "idem_inbox_messages" SET starts = max(starts - 1, 0) WHERE id = ?1"#;

pub(super) const JUDGE: &str = r#"
UPDATE "idem_inbox_messages" SET token = NULL, state = 'dead', reason = ?4, died_at = {now}
WHERE handler_id IN (SELECT value FROM json_each(?1)) AND state = 'parked' AND (starts >= 1 OR breaks >= 2)
    AND starts >= ?2 AND due_at < {now} - ?3"#;

impl InboxRows for Sqlite {
    async fn insert(&self, txn: &mut Txn, row: &NewRow<'_>) -> Result<(), Fault> {
        insert(self, txn, row).await
    }

    async fn sight(&self, txn: &mut Txn, identity: &Identity) -> Result<(), Fault> {
        let query = sqlx::query(self.prefix.sql(SIGHT))
            .bind(identity.handler.0)
            .bind(identity.key.as_bytes())
            .bind(identity.fingerprint.as_bytes());
        query.execute(txn.connection()).await.map(|_| ()).map_err(|error| self.file.fault_of_message(error))
    }

    /// Two statements, since SQLite has none that changes two tables; nobody sees what is between them.
    async fn start(&self, txn: &mut Txn, row: &Row) -> Result<bool, Fault> {
        if !remove(self, txn, row).await? {
            return Ok(false);
        }
        let Identity { handler, key, .. } = &row.identity;
        let date = sqlx::query(self.prefix.sql(DATE)).bind(handler.0).bind(key.as_bytes());
        date.execute(txn.connection()).await.map_err(|error| self.file.fault_of_message(error))?;
        txn.guard(*handler, key).await.map_err(|error| self.file.fault_of_message(error))?;
        Ok(true)
    }

    async fn remove(&self, txn: &mut Txn, row: &Row) -> Result<bool, Fault> {
        remove(self, txn, row).await
    }

    async fn survey(&self, handlers: &[HandlerId], lease: Duration) -> Result<Survey, Fault> {
        let mut reader = self.file.reader().await?;
        let read = async {
            let row = sqlx::query(self.prefix.sql(SURVEY))
                .bind(ids(handlers))
                .bind(MAX_STARTS)
                .bind(millis(lease.saturating_mul(JUDGE_LEASES)))
                .fetch_one(&mut reader.connection)
                .await?;
            let ordinary = row.try_get("ordinary")?;
            let suspect = row.try_get("suspect")?;
            Ok(Survey { ordinary, suspect, judge: row.try_get("judge")? })
        };
        let survey = read.await.map_err(|error| self.file.fault(error))?;
        reader.give_back();
        Ok(survey)
    }

    async fn take(
        &self,
        handlers: &[HandlerId],
        kind: Kind,
        limit: Limit,
        token: Uuid,
        lease: Duration,
    ) -> Result<Vec<Row>, Fault> {
        let text = match kind {
            Kind::Ordinary => TAKE_ORDINARY,
            Kind::Suspect => TAKE_SUSPECT,
        };
        let most = i64::try_from(limit.rows).unwrap_or(i64::MAX);
        let mut lane = self.file.lane().await?;
        let take = async {
            let due = sqlx::query(self.prefix.sql(DUE))
                .bind(ids(handlers))
                .bind(if kind == Kind::Ordinary { most } else { 0 })
                .fetch_all(lane.connection())
                .await?;
            let mut waited = HashMap::with_capacity(due.len());
            let (mut bytes, mut fit) = (0, 0);
            for row in &due {
                waited.insert(row.try_get::<i64, _>("id")?, duration(row.try_get("waited")?));
                fit += i64::from(bytes < limit.bytes);
                bytes += usize::try_from(row.try_get::<i64, _>("bytes")?).unwrap_or(0);
            }
            let most = if kind == Kind::Ordinary { fit } else { most };
            let query =
                sqlx::query(self.prefix.sql(text)).bind(ids(handlers)).bind(most).bind(millis(lease)).bind(token);
            let query = if kind == Kind::Suspect { query.bind(MAX_STARTS) } else { query };
            let mut taken = rows(&query.fetch_all(lane.connection()).await?)?;
            taken.iter_mut().for_each(|row| row.waited = waited.remove(&row.id));
            Ok(taken)
        };
        let taken = take.await.map_err(|error| self.file.fault(error))?;
        lane.give_back();
        Ok(taken)
    }

    async fn count_start(&self, row: &Row, lease: Duration) -> Result<bool, Fault> {
        let query = sqlx::query(self.prefix.sql(COUNT_START)).bind(row.id).bind(row.token);
        Ok(self.change(query.bind(row.starts + 1).bind(millis(lease))).await? == 1)
    }

    async fn extend(&self, token: Uuid, ids: &[i64], lease: Duration) -> Result<(), Fault> {
        let ids = ids.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        let query = sqlx::query(self.prefix.sql(EXTEND)).bind(format!("[{ids}]")).bind(token).bind(millis(lease));
        self.change(query).await.map(|_| ())
    }

    /// Through the writer's queue, not as a reader: the connection whose answer was lost is closed before.
    async fn taken(&self, token: Uuid) -> Result<Vec<Row>, Fault> {
        let mut lane = self.file.lane().await?;
        let taken = sqlx::query(self.prefix.sql(TAKEN)).bind(token).fetch_all(lane.connection()).await;
        let taken = taken.and_then(|taken: Vec<SqliteRow>| rows(&taken)).map_err(|error| self.file.fault(error))?;
        lane.give_back();
        Ok(taken)
    }

    async fn note(&self, row: &Row, note: &Note) -> Result<bool, Fault> {
        let (text, due, reason, error) = match note {
            Note::Failed { next, error } => (FAILED, next.unwrap_or_default(), next.err(), Some(error)),
            Note::Broke { due, error } => (BROKE, *due, Some(Reason::BrokeConnection), Some(error)),
            Note::GivenBack { due } => (GIVEN_BACK, *due, None, None),
            Note::Released => (RELEASED, Duration::ZERO, None, None),
            Note::Dead { reason, error } => (DEAD, Duration::ZERO, Some(*reason), Some(error)),
        };
        let mut query = sqlx::query(self.prefix.sql(text)).bind(row.id).bind(row.token).bind(millis(due));
        if let Some(error) = error {
            query = query.bind(reason.map(Reason::as_str)).bind(error.as_str());
        }
        match note {
            Note::Broke { .. } => query = query.bind(MAX_BREAKS),
            Note::Released => query = query.bind(row.starts),
            _ => {}
        }
        Ok(self.change_of_message(query).await? == 1)
    }

    async fn is_parked(&self, identity: &Identity) -> Result<bool, Fault> {
        let mut reader = self.file.reader().await?;
        let query = sqlx::query(self.prefix.sql(IS_PARKED))
            .bind(identity.handler.0)
            .bind(identity.key.as_bytes())
            .bind(identity.fingerprint.as_bytes());
        let row = query.fetch_optional(&mut reader.connection).await.map_err(|error| self.file.fault(error))?;
        reader.give_back();
        Ok(row.is_some())
    }

    async fn make_due(&self, identity: &Identity) -> Result<(), Fault> {
        let query = sqlx::query(self.prefix.sql(MAKE_DUE))
            .bind(identity.handler.0)
            .bind(identity.key.as_bytes())
            .bind(identity.fingerprint.as_bytes());
        self.change(query).await.map(|_| ())
    }

    async fn unstart(&self, row: &Row) -> Result<(), Fault> {
        self.change(sqlx::query(self.prefix.sql(UNSTART)).bind(row.id)).await.map(|_| ())
    }

    async fn judge(&self, handlers: &[HandlerId], lease: Duration) -> Result<u64, Fault> {
        let query = sqlx::query(self.prefix.sql(JUDGE))
            .bind(ids(handlers))
            .bind(MAX_STARTS)
            .bind(millis(lease.saturating_mul(JUDGE_LEASES)))
            .bind(Reason::Crashed.as_str());
        self.change(query).await
    }
}
