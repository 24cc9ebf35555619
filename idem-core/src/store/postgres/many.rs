//! Several messages at once: claims are inserted and read, and inbox rows inserted, each in one statement.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sqlx::Row as _;

use crate::Fingerprint;
use crate::store::{ClaimState, Claimed, ExistingClaim, Identity, NewRow, Row, StoreError, envelope, error_text};

use super::rows::{duration, number, secs, time};
use super::statement::Statement;
use super::{Postgres, Txn};

/// How long a claim of several messages waits for a lock, in milliseconds: enough for a commit. If it waited as long as
/// a claim of one message does, one held claim would delay all others, which are available at once.
const MANY_WAIT: u64 = 100;

pub(super) async fn claim_many(
    store: &Postgres,
    txn: &mut Txn,
    identities: &[&Identity],
    state: ClaimState,
) -> Result<Vec<Claimed>, StoreError> {
    let own = txn.lock_wait();
    let handlers_own = match state {
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
        let query = query.bind(state == ClaimState::Processed).bind(own.min(MANY_WAIT).to_string());
        query.bind(handlers_own.clone()).bind(own.to_string()).bind(&distinct)
    };
    // A lost race fails the transaction, so nothing may have been written in it.
    let uncontended = match txn.is_fresh() {
        true => txn.ask_alone(claim(&store.sql().claim_uncontended)).await?,
        false => None,
    };
    let marked = uncontended.is_some();
    let rows = match uncontended {
        Some(rows) => rows,
        None => txn.ask(claim(&store.sql().claim_contended)).await?,
    };
    let none = || Ok(vec![Claimed::Found(None); identities.len()]);
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
    let first =
        identities.iter().find(|identity| Some(identity.handler.0) == handler && Some(identity.key.as_bytes()) == key);
    txn.guard(xid, first.map(|identity| (identity.handler, identity.key.clone())));
    if state == ClaimState::Processed {
        txn.guard_batch();
        if !marked {
            txn.ask(store.sql().mark.query().bind(handler).bind(key)).await?;
        }
    }
    let (Some(new_handlers), Some(new_keys)) = new else { return Ok(handlers.into_iter().map(made).collect()) };
    let new = new_handlers.iter().copied().zip(new_keys.iter().map(Vec::as_slice)).collect::<HashSet<_>>();
    let claimed = |at: (i32, &[u8])| if new.contains(&at) { made(at.0) } else { Claimed::Found(None) };
    Ok(handlers.into_iter().zip(keys).map(claimed).collect())
}

pub(super) async fn read_many(
    txn: &mut Txn,
    identities: &[&Identity],
    statement: &Statement,
) -> Result<Vec<Option<ExistingClaim>>, StoreError> {
    let (handlers, keys) = columns(identities);
    let rows = txn.ask(statement.query().bind(&handlers).bind(&keys)).await?;
    let mut found = HashMap::<(i32, &[u8]), ExistingClaim>::with_capacity(rows.len());
    for row in &rows {
        let fingerprint = Fingerprint::stored(row.try_get(2)?);
        let age = row.try_get::<Option<i64>, _>(3)?.map(duration);
        found.insert((row.try_get(0)?, row.try_get(1)?), ExistingClaim { fingerprint, age });
    }
    Ok(handlers.into_iter().zip(keys).map(|at| found.remove(&at)).collect())
}

pub(super) async fn count_duplicates(
    store: &Postgres,
    txn: &mut Txn,
    identities: &[&Identity],
) -> Result<(), StoreError> {
    let (handlers, keys) = columns(identities);
    let query = store.sql().count_duplicates.query().bind(handlers).bind(keys);
    txn.ask(query.bind(fingerprints(identities))).await?;
    Ok(())
}

pub(super) async fn start_many(store: &Postgres, txn: &mut Txn, rows: &[&Row]) -> Result<Vec<bool>, StoreError> {
    let lock_timeout = txn.lock_timeout();
    let ids = rows.iter().map(|row| row.id).collect::<Vec<_>>();
    let tokens = rows.iter().map(|row| row.locked_by).collect::<Vec<_>>();
    let found = txn.ask(store.sql().start_many.query().bind(&ids).bind(&tokens).bind(lock_timeout)).await?;
    let Some(found) = found.first() else { return Ok(vec![false; rows.len()]) };
    let started: Vec<i64> = found.try_get(0)?;
    let started: HashSet<i64> = started.into_iter().collect();
    let first = rows.iter().find(|row| started.contains(&row.id)).map(|row| &row.identity);
    txn.guard(found.try_get(1)?, first.map(|identity| (identity.handler, identity.key.clone())));
    txn.guard_batch();
    Ok(ids.iter().map(|id| started.contains(id)).collect())
}

pub(super) async fn insert_many(store: &Postgres, txn: &mut Txn, rows: &[NewRow<'_>]) -> Result<(), StoreError> {
    let identities = rows.iter().map(|row| row.identity).collect::<Vec<_>>();
    let (handlers, keys) = columns(&identities);
    let payloads = rows.iter().map(|row| &row.delivery.payload()[..]).collect::<Vec<_>>();
    let envelopes = rows.iter().map(|row| envelope::seal(row.delivery)).collect::<Vec<_>>();
    let attempts = rows.iter().map(|row| number(row.attempts)).collect::<Vec<_>>();
    let due = rows.iter().map(|row| secs(row.state.unwrap_or(Duration::ZERO))).collect::<Vec<_>>();
    let reasons = rows.iter().map(|row| row.state.err().map(crate::Reason::as_str)).collect::<Vec<_>>();
    let errors = rows.iter().map(|row| error_text(row.error).into_owned().into_bytes()).collect::<Vec<_>>();
    let calls = rows.iter().map(|row| row.calls).collect::<Vec<_>>();
    let provider_key = rows.iter().map(|row| row.provider_key).collect::<Vec<_>>();
    let query =
        store.sql().insert_many.query().bind(handlers).bind(keys).bind(fingerprints(&identities)).bind(payloads);
    let query =
        query.bind(envelopes).bind(attempts).bind(due).bind(reasons).bind(errors).bind(calls).bind(provider_key);
    let stored = txn.ask_payloads(query).await?.len();
    if stored == rows.len() { Ok(()) } else { Err(not_stored()) }
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
