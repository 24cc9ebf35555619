//! Several messages at once: claims are inserted and read, and inbox rows inserted, each in one statement.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sqlx::Row as _;

use crate::Fingerprint;
use crate::store::{ClaimState, Claimed, ExistingClaim, Identity, NewRow, Row, StoreError, envelope};

use super::rows::{number, secs, time};
use super::statement::Statement;
use super::{Postgres, Txn};

/// How long a claim of several messages waits for a lock, in milliseconds: enough for a commit. If it waited as long as
/// a claim of one message does, one held claim would delay all others, which are available at once.
const MANY_WAIT: u64 = 100;

/// As the claim of one message, with a shorter lock timeout. The timeout is set before the first row, and restored
/// after an aggregate: in RETURNING, the first claim would restore it before the second one waits. Sorted here as well,
/// since a join may return rows in any order. The new claims are listed only if some are not new. How far claims of the
/// handlers $8 were pruned is read in the same snapshot as NOT EXISTS, as for one claim.
///
/// `OFFSET 0` makes NOT EXISTS an index lookup per key (PostgreSQL does not pull up a sublink with OFFSET). As a join
/// it is hashed while the table has no statistics, and reads all claims for each batch until autovacuum runs.
fn claim(on_conflict: &str, batch: &str) -> String {
    format!(
        "
    WITH claimed AS (
        INSERT INTO {{schema}}.processed_messages AS claim (handler_id, key, fingerprint, processed_at, batch_xid)
        SELECT new.handler_id, new.key, new.fingerprint, CASE WHEN $4 THEN now() END, {batch}
        FROM unnest($1::int[], $2::bytea[], $3::bytea[]) AS new (handler_id, key, fingerprint)
        WHERE (SELECT set_config('lock_timeout', $5, true)) IS NOT NULL AND NOT EXISTS (
            SELECT FROM {{schema}}.processed_messages AS known
            WHERE known.handler_id = new.handler_id AND known.key = new.key OFFSET 0
        )
        ORDER BY new.handler_id, new.key
        {on_conflict}
        RETURNING handler_id, key
    )
    SELECT CASE WHEN count(*) < cardinality($1) THEN array_agg(handler_id) END,
           CASE WHEN count(*) < cardinality($1) THEN array_agg(key) END,
           CASE WHEN count(*) > 0 THEN pg_current_xact_id()::text END,
           set_config('lock_timeout', CASE WHEN count(*) > 0 THEN coalesce($6, $7) ELSE $7 END, true),
           (SELECT array_agg(row.pruned_through ORDER BY row.place) FROM (
               SELECT asked.place, (extract(epoch FROM h.pruned_through) * 1000000)::bigint AS pruned_through
               FROM unnest($8::int[]) WITH ORDINALITY AS asked (id, place)
               LEFT JOIN {{schema}}.handlers AS h ON h.id = asked.id
           ) AS row)
    FROM claimed"
    )
}

/// For keys that no other transaction claims at the same time, which is nearly always the case. ON CONFLICT searches
/// the index once more and marks each row as tentative, which takes a third of the statement's time; without it a lost
/// race is an error.
pub(super) fn claim_alone() -> String {
    // One claim records that only idem commits this transaction. The first one is new: otherwise the statement fails.
    claim("", "CASE WHEN $4 AND row_number() OVER (ORDER BY new.handler_id, new.key) = 1 THEN pg_current_xact_id() END")
}

/// For keys that another transaction may claim at the same time.
pub(super) fn claim_beside() -> String {
    // It is not known yet which of them is new; [`MARK`] follows.
    claim("ON CONFLICT (handler_id, key) DO NOTHING", "NULL::xid8")
}

/// Records in one claim that only idem commits its transaction.
pub(super) const MARK: &str = "
    UPDATE {schema}.processed_messages SET batch_xid = pg_current_xact_id() WHERE handler_id = $1 AND key = $2";

const ANSWER: &str = "
    SELECT claim.handler_id, claim.key, claim.fingerprint,
           (extract(epoch FROM clock_timestamp() - claim.processed_at) * 1000000)::bigint
    FROM unnest($1::int[], $2::bytea[]) AS asked (handler_id, key)";

/// Rows are locked after the sort (PostgreSQL manual, SELECT, The Locking Clause).
pub(super) fn standing() -> String {
    format!(
        "{ANSWER} JOIN {{schema}}.processed_messages AS claim
             ON claim.handler_id = asked.handler_id AND claim.key = asked.key
         ORDER BY claim.handler_id, claim.key FOR KEY SHARE OF claim"
    )
}

/// `OFFSET 0` as in the claim.
pub(super) fn known() -> String {
    format!(
        "{ANSWER} CROSS JOIN LATERAL (
             SELECT * FROM {{schema}}.processed_messages AS claim
             WHERE claim.handler_id = asked.handler_id AND claim.key = asked.key OFFSET 0
         ) AS claim"
    )
}

/// As the start of one row.
pub(super) const START: &str = "
    WITH gone AS (
        DELETE FROM {schema}.inbox_messages AS i USING unnest($1::bigint[], $2::uuid[]) AS ours (id, token)
        WHERE i.id = ours.id AND i.token = ours.token RETURNING i.id, i.handler_id, i.key
    ), dated AS (
        UPDATE {schema}.processed_messages AS claim
        SET processed_at = now(),
            batch_xid = CASE WHEN gone.id = (SELECT min(id) FROM gone) THEN pg_current_xact_id() END
        FROM gone
        WHERE claim.handler_id = gone.handler_id AND claim.key = gone.key
    )
    SELECT array_agg(id), pg_current_xact_id()::text, set_config('lock_timeout', $3, true)
    FROM gone HAVING count(*) > 0";

pub(super) const INSERT: &str = "
    INSERT INTO {schema}.inbox_messages AS i
        (handler_id, key, fingerprint, payload, envelope, attempts, state, due_at, reason, died_at, error)
    SELECT new.handler_id, new.key, new.fingerprint, new.payload, new.envelope, new.attempts,
           CASE WHEN new.reason IS NULL THEN 'scheduled' ELSE 'dead' END, now() + new.due * interval '1 second',
           new.reason, CASE WHEN new.reason IS NOT NULL THEN now() END, new.error
    FROM unnest($1::int[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::int[], $7::float8[], $8::text[],
                $9::bytea[])
        AS new (handler_id, key, fingerprint, payload, envelope, attempts, due, reason, error)
    ORDER BY new.handler_id, new.key, new.fingerprint
    ON CONFLICT (handler_id, key, fingerprint) DO UPDATE SET sightings = i.sightings + 1
    RETURNING 1";

/// The rows are locked in the order of their ids, so that two transactions cannot deadlock.
pub(super) const SIGHT: &str = "
    WITH seen AS (
        SELECT handler_id, key, fingerprint, count(*) AS times
        FROM unnest($1::int[], $2::bytea[], $3::bytea[]) AS seen (handler_id, key, fingerprint)
        GROUP BY handler_id, key, fingerprint
    ), dead AS MATERIALIZED (
        SELECT i.id, seen.times FROM seen JOIN {schema}.inbox_messages AS i
            ON i.handler_id = seen.handler_id AND i.key = seen.key AND i.fingerprint = seen.fingerprint
        WHERE i.state = 'dead' ORDER BY i.id FOR UPDATE OF i
    )
    UPDATE {schema}.inbox_messages AS i SET sightings = i.sightings + dead.times FROM dead WHERE i.id = dead.id";

impl Postgres {
    pub(super) async fn make_claims(
        &self,
        txn: &mut Txn,
        identities: &[&Identity],
        promise: ClaimState,
    ) -> Result<Vec<Claimed>, StoreError> {
        let own = txn.lock_wait();
        let handlers_own = match promise {
            ClaimState::Processed => Some(txn.lock_timeout()),
            ClaimState::Waiting => None,
        };
        let (handlers, keys) = columns(identities);
        let fingerprints = fingerprints(identities);
        let mut distinct = handlers.clone();
        // Sorted, as the claims are.
        distinct.dedup();
        let claim = |statement: &Statement| {
            let query = statement.query().bind(&handlers).bind(&keys).bind(&fingerprints);
            let query = query.bind(promise == ClaimState::Processed).bind(own.min(MANY_WAIT).to_string());
            query.bind(handlers_own.clone()).bind(own.to_string()).bind(&distinct)
        };
        // A lost race fails the transaction, so nothing may have been written in it.
        let alone = match txn.is_fresh() {
            true => txn.ask_alone(claim(&self.sql().claim_alone)).await?,
            false => None,
        };
        let marked = alone.is_some();
        let rows = match alone {
            Some(rows) => rows,
            None => txn.ask(claim(&self.sql().claim_beside)).await?,
        };
        let none = || Ok(vec![Claimed::Found; identities.len()]);
        let Some(row) = rows.first() else { return none() };
        let Some(xid) = row.try_get(2)? else { return none() };
        let pruned: Vec<Option<i64>> = row.try_get::<Option<_>, _>(4)?.unwrap_or_default();
        let pruned: HashMap<i32, Option<i64>> = distinct.iter().copied().zip(pruned).collect();
        let made = |handler| Claimed::New { pruned_through: pruned.get(&handler).copied().flatten().map(time) };
        let new: (Option<Vec<i32>>, Option<Vec<Vec<u8>>>) = (row.try_get(0)?, row.try_get(1)?);
        let (handler, key) = match &new {
            (Some(handlers), Some(keys)) => (handlers.first().copied(), keys.first().map(Vec::as_slice)),
            _ => (handlers.first().copied(), keys.first().copied()),
        };
        let first = identities
            .iter()
            .find(|identity| Some(identity.handler.0) == handler && Some(identity.key.as_bytes()) == key);
        txn.guard(xid, first.map(|identity| (identity.handler, identity.key)));
        if promise == ClaimState::Processed {
            txn.guard_batch();
            if !marked {
                txn.ask(self.sql().mark.query().bind(handler).bind(key)).await?;
            }
        }
        let (Some(new_handlers), Some(new_keys)) = new else { return Ok(handlers.into_iter().map(made).collect()) };
        let new = new_handlers.iter().copied().zip(new_keys.iter().map(Vec::as_slice)).collect::<HashSet<_>>();
        let claimed = |at: (i32, &[u8])| if new.contains(&at) { made(at.0) } else { Claimed::Found };
        Ok(handlers.into_iter().zip(keys).map(claimed).collect())
    }

    pub(super) async fn read_claims(
        &self,
        txn: &mut Txn,
        identities: &[&Identity],
        statement: &Statement,
    ) -> Result<Vec<Option<ExistingClaim>>, StoreError> {
        let (handlers, keys) = columns(identities);
        let rows = txn.ask(statement.query().bind(&handlers).bind(&keys)).await?;
        let mut found = HashMap::<(i32, &[u8]), ExistingClaim>::with_capacity(rows.len());
        for row in &rows {
            let micros: Option<i64> = row.try_get(3)?;
            let fingerprint = Fingerprint::stored(row.try_get(2)?);
            let age = micros.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0)));
            found.insert((row.try_get(0)?, row.try_get(1)?), ExistingClaim { fingerprint, age });
        }
        Ok(handlers.into_iter().zip(keys).map(|at| found.remove(&at)).collect())
    }

    pub(super) async fn sight_rows(&self, txn: &mut Txn, identities: &[&Identity]) -> Result<(), StoreError> {
        let (handlers, keys) = columns(identities);
        let query = self.sql().sight_many.query().bind(handlers).bind(keys);
        txn.ask(query.bind(fingerprints(identities))).await?;
        Ok(())
    }

    pub(super) async fn start_rows(&self, txn: &mut Txn, rows: &[&Row]) -> Result<Vec<bool>, StoreError> {
        let lock_timeout = txn.lock_timeout();
        let ids = rows.iter().map(|row| row.id).collect::<Vec<_>>();
        let tokens = rows.iter().map(|row| row.token).collect::<Vec<_>>();
        let found = txn.ask(self.sql().start_many.query().bind(&ids).bind(&tokens).bind(lock_timeout)).await?;
        let Some(found) = found.first() else { return Ok(vec![false; rows.len()]) };
        let started: Vec<i64> = found.try_get(0)?;
        let started: HashSet<i64> = started.into_iter().collect();
        let first = rows.iter().find(|row| started.contains(&row.id)).map(|row| &row.identity);
        txn.guard(found.try_get(1)?, first.map(|identity| (identity.handler, identity.key)));
        txn.guard_batch();
        Ok(ids.iter().map(|id| started.contains(id)).collect())
    }

    pub(super) async fn insert_rows(&self, txn: &mut Txn, rows: &[NewRow<'_>]) -> Result<(), StoreError> {
        let identities = rows.iter().map(|row| row.identity).collect::<Vec<_>>();
        let (handlers, keys) = columns(&identities);
        let payloads = rows.iter().map(|row| &row.delivery.payload()[..]).collect::<Vec<_>>();
        let envelopes = rows.iter().map(|row| envelope::seal(row.delivery)).collect::<Vec<_>>();
        let attempts = rows.iter().map(|row| number(row.attempts)).collect::<Vec<_>>();
        let due = rows.iter().map(|row| secs(row.state.unwrap_or(Duration::ZERO))).collect::<Vec<_>>();
        let reasons = rows.iter().map(|row| row.state.err().map(crate::Reason::as_str)).collect::<Vec<_>>();
        let errors = rows.iter().map(|row| row.error.as_bytes()).collect::<Vec<_>>();
        let query =
            self.sql().insert_many.query().bind(handlers).bind(keys).bind(fingerprints(&identities)).bind(payloads);
        let query = query.bind(envelopes).bind(attempts).bind(due).bind(reasons).bind(errors);
        let stored = txn.ask_payloads(query).await?.len();
        if stored == rows.len() { Ok(()) } else { Err(not_stored()) }
    }
}

/// The statement has succeeded, and a row is not there: only a trigger of somebody else's does that.
pub(super) fn not_stored() -> StoreError {
    StoreError::Message("PostgreSQL has stored no row: a BEFORE INSERT trigger of inbox_messages returns NULL".into())
}

/// Handler ids and keys, for `unnest`.
fn columns<'a>(identities: &[&'a Identity]) -> (Vec<i32>, Vec<&'a [u8]>) {
    identities.iter().map(|identity| (identity.handler.0, identity.key.as_bytes())).unzip()
}

fn fingerprints<'a>(identities: &[&'a Identity]) -> Vec<&'a [u8]> {
    identities.iter().map(|identity| identity.fingerprint.as_bytes()).collect()
}
