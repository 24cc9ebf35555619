//! Several messages at once: claims made and read, inbox rows inserted, each in one statement.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sqlx::Row as _;

use crate::Fingerprint;
use crate::store::{Claimed, Fault, Identity, NewRow, Promise, Standing, envelope};

use super::inbox::number;
use super::rows::secs;
use super::{Postgres, Txn};

/// As the claim of one message. Sorted here as well, since a join may come in any order. The lock timeout is given back
/// behind an aggregate: in RETURNING, the first claim would give it back before the second one waits. `HAVING`: where
/// nothing is new, no handler follows.
pub(super) const CLAIM: &str = "
    WITH claimed AS (
        INSERT INTO {schema}.processed_messages AS claim (handler_id, key, fingerprint, processed_at)
        SELECT new.handler_id, new.key, new.fingerprint, CASE WHEN $4 THEN now() END
        FROM unnest($1::int[], $2::bytea[], $3::bytea[]) AS new (handler_id, key, fingerprint)
        WHERE NOT EXISTS (
            SELECT FROM {schema}.processed_messages AS known
            WHERE known.handler_id = new.handler_id AND known.key = new.key
        )
        ORDER BY new.handler_id, new.key
        ON CONFLICT (handler_id, key) DO NOTHING
        RETURNING handler_id, key
    )
    SELECT array_agg(handler_id), array_agg(key), pg_current_xact_id()::text,
           set_config('lock_timeout', coalesce($5, current_setting('lock_timeout')), true)
    FROM claimed HAVING count(*) > 0";

/// Locks are taken behind the sort (PostgreSQL manual, SELECT, The Locking Clause).
pub(super) const STANDING: &str = "
    SELECT claim.handler_id, claim.key, claim.fingerprint,
           (extract(epoch FROM clock_timestamp() - claim.processed_at) * 1000000)::bigint
    FROM unnest($1::int[], $2::bytea[]) AS asked (handler_id, key)
    JOIN {schema}.processed_messages AS claim ON claim.handler_id = asked.handler_id AND claim.key = asked.key
    ORDER BY claim.handler_id, claim.key FOR KEY SHARE OF claim";

pub(super) const INSERT: &str = "
    INSERT INTO {schema}.inbox_messages AS i
        (handler_id, key, fingerprint, payload, envelope, attempts, state, due_at, reason, died_at, error)
    SELECT new.handler_id, new.key, new.fingerprint, new.payload, new.envelope, new.attempts,
           CASE WHEN new.reason IS NULL THEN 'parked' ELSE 'dead' END, now() + new.due * interval '1 second',
           new.reason, CASE WHEN new.reason IS NOT NULL THEN now() END, new.error
    FROM unnest($1::int[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::int[], $7::float8[], $8::text[],
                $9::bytea[])
        AS new (handler_id, key, fingerprint, payload, envelope, attempts, due, reason, error)
    ORDER BY new.handler_id, new.key, new.fingerprint
    ON CONFLICT (handler_id, key, fingerprint) DO UPDATE SET sightings = i.sightings + 1";

impl Postgres {
    pub(super) async fn make_claims(
        &self,
        txn: &mut Txn,
        identities: &[&Identity],
        promise: Promise,
    ) -> Result<Vec<Claimed>, Fault> {
        let lock_timeout = match promise {
            Promise::Processed => Some(txn.lock_timeout()),
            Promise::Waiting => None,
        };
        let (handlers, keys) = columns(identities);
        let fingerprints = identities.iter().map(|identity| identity.fingerprint.as_bytes()).collect::<Vec<_>>();
        let query = self.sql().claim_many.query().bind(&handlers).bind(&keys).bind(&fingerprints);
        let rows = txn.ask(query.bind(promise == Promise::Processed).bind(lock_timeout)).await?;
        let Some(row) = rows.first() else { return Ok(vec![Claimed::Found; identities.len()]) };
        let new_handlers: Vec<i32> = row.try_get(0)?;
        let new_keys: Vec<Vec<u8>> = row.try_get(1)?;
        txn.guard(row.try_get(2)?);
        let new = new_handlers.iter().copied().zip(new_keys.iter().map(Vec::as_slice)).collect::<HashSet<_>>();
        let claimed = |at| if new.contains(&at) { Claimed::New } else { Claimed::Found };
        Ok(handlers.into_iter().zip(keys).map(claimed).collect())
    }

    pub(super) async fn read_claims(
        &self,
        txn: &mut Txn,
        identities: &[&Identity],
    ) -> Result<Vec<Option<Standing>>, Fault> {
        let (handlers, keys) = columns(identities);
        let rows = txn.ask(self.sql().standing_many.query().bind(&handlers).bind(&keys)).await?;
        let mut found = HashMap::<(i32, &[u8]), Standing>::with_capacity(rows.len());
        for row in &rows {
            let micros: Option<i64> = row.try_get(3)?;
            let fingerprint = Fingerprint::stored(row.try_get(2)?);
            let age = micros.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0)));
            found.insert((row.try_get(0)?, row.try_get(1)?), Standing { fingerprint, age });
        }
        Ok(handlers.into_iter().zip(keys).map(|at| found.remove(&at)).collect())
    }

    pub(super) async fn insert_rows(&self, txn: &mut Txn, rows: &[NewRow<'_>]) -> Result<(), Fault> {
        let (handlers, keys) = columns(&rows.iter().map(|row| row.identity).collect::<Vec<_>>());
        let fingerprints = rows.iter().map(|row| row.identity.fingerprint.as_bytes()).collect::<Vec<_>>();
        let payloads = rows.iter().map(|row| &row.delivery.payload()[..]).collect::<Vec<_>>();
        let envelopes = rows.iter().map(|row| envelope::seal(row.delivery)).collect::<Vec<_>>();
        let attempts = rows.iter().map(|row| number(row.attempts)).collect::<Vec<_>>();
        let due = rows.iter().map(|row| secs(row.state.unwrap_or(Duration::ZERO))).collect::<Vec<_>>();
        let reasons = rows.iter().map(|row| row.state.err().map(crate::Reason::as_str)).collect::<Vec<_>>();
        let errors = rows.iter().map(|row| row.error.as_bytes()).collect::<Vec<_>>();
        let query = self.sql().insert_many.query().bind(handlers).bind(keys).bind(fingerprints).bind(payloads);
        txn.ask(query.bind(envelopes).bind(attempts).bind(due).bind(reasons).bind(errors)).await?;
        Ok(())
    }
}

/// Handlers and keys, for `unnest`.
fn columns<'a>(identities: &[&'a Identity]) -> (Vec<i32>, Vec<&'a [u8]>) {
    identities.iter().map(|identity| (identity.handler.0, identity.key.as_bytes())).unzip()
}
