//! Handlers and their claims.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::Fingerprint;
use crate::store::{ClaimState, Claimed, Claims, ExistingClaim, HandlerId, History, Identity, StoreError, Ticket};

use super::answer::{About, Failure};
use super::quote::bytes;
use super::rows::{duration, ids, time};
use super::{Postgres, Txn, begin, claims_sql, register_sql, rollback};

/// How long a claim of several messages waits for a lock, in milliseconds: enough for a commit. If it waited as long as
/// a claim of one message does, one held claim would delay all others, which are available at once.
const MANY_WAIT: u64 = 100;

impl Claims for Postgres {
    async fn register(&self, consumer: &str, names: &[&str]) -> Result<Vec<HandlerId>, StoreError> {
        self.intern(consumer, names).await
    }

    async fn rename(&self, consumer: &str, old: &str, new: &str) -> Result<bool, StoreError> {
        self.join_names(consumer, old, new).await
    }

    async fn record_seen(&self, handlers: &[HandlerId]) -> Result<bool, StoreError> {
        let rows = self.ask(self.query(register_sql::SEEN).bind(ids(handlers))).await?;
        let there = rows.first().map_or(Ok(0_i64), |row| row.try_get(0))?;
        Ok(there == handlers.iter().collect::<HashSet<_>>().len() as i64)
    }

    async fn histories(&self, consumer: &str) -> Result<Vec<History>, StoreError> {
        let rows = self.ask(self.query(&register_sql::histories()).bind(consumer)).await?;
        let history = |row: &PgRow| {
            Ok(History {
                handler: row.try_get(0)?,
                seen: duration(row.try_get(1)?),
                has_claims: row.try_get(2)?,
                formerly: row.try_get(3)?,
            })
        };
        Ok(rows.iter().map(history).collect::<Result<_, sqlx::Error>>()?)
    }

    async fn record_history(&self, handler: HandlerId) -> Result<(), StoreError> {
        self.ask(self.query(register_sql::RECORD_HISTORY).bind(handler.0)).await.map(drop)
    }

    async fn retention(&self, handlers: &[HandlerId]) -> Result<Vec<Option<Duration>>, StoreError> {
        let rows = self.ask(self.query(register_sql::RETENTION).bind(ids(handlers))).await?;
        let retention = |row: &PgRow| Ok(row.try_get::<Option<i64>, _>(0)?.map(duration));
        Ok(rows.iter().map(retention).collect::<Result<_, sqlx::Error>>()?)
    }

    async fn claim(
        &self,
        txn: &mut Txn,
        identities: &[&Identity],
        state: ClaimState,
    ) -> Result<Vec<Claimed>, StoreError> {
        let own = txn.lock_wait;
        let wait = own.min(MANY_WAIT);
        // No handler follows a claim that waits, only idem's own statements.
        let handlers_own = (state == ClaimState::Processed).then(|| txn.lock_timeout());
        let (handlers, keys) = columns(identities);
        let mut distinct = handlers.clone();
        // Sorted, as the claims are.
        distinct.dedup();
        let claim = |statement: &str| {
            let query = self.query(statement).bind(&handlers).bind(&keys).bind(fingerprints(identities));
            let query = query.bind(state == ClaimState::Processed).bind(wait.to_string());
            query.bind(handlers_own.clone()).bind(own.to_string()).bind(&distinct)
        };
        // A lost race fails the transaction, so nothing may have been written in it.
        let uncontended = match txn.fresh {
            true => txn.ask_alone(claim(&claims_sql::claim_uncontended())).await?,
            false => None,
        };
        let marked = uncontended.is_some();
        let rows = match uncontended {
            Some(rows) => rows,
            None => txn.ask(claim(&claims_sql::claim_contended())).await?,
        };
        let none = || Ok(vec![Claimed::Found(None); identities.len()]);
        let Some(row) = rows.first() else { return none() };
        let Some(xid) = row.try_get(2)? else { return none() };
        let pruned: Vec<Option<i64>> = row.try_get::<Option<_>, _>(4)?.unwrap_or_default();
        let pruned: HashMap<i32, Option<i64>> = distinct.iter().copied().zip(pruned).collect();
        // Without a list, all of them are new.
        let listed: Option<(Vec<i32>, Vec<Vec<u8>>)> =
            row.try_get::<Option<_>, _>(0)?.zip(row.try_get::<Option<_>, _>(1)?);
        let new: Option<HashSet<(i32, &[u8])>> = listed
            .as_ref()
            .map(|(handlers, keys)| handlers.iter().copied().zip(keys.iter().map(Vec::as_slice)).collect());
        let claimed = |identity: &&Identity| {
            let place = (identity.handler.0, identity.key.as_bytes());
            match new.as_ref().is_none_or(|new| new.contains(&place)) {
                true => Claimed::New { pruned_through: pruned.get(&place.0).copied().flatten().map(time) },
                false => Claimed::Found(None),
            }
        };
        let claimed: Vec<Claimed> = identities.iter().map(claimed).collect();
        let first =
            identities.iter().zip(&claimed).find(|(_, claimed)| claimed.is_new()).map(|(identity, _)| *identity);
        txn.guard(xid, first);
        if let (ClaimState::Processed, Some(first)) = (state, first) {
            txn.batch = true;
            if !marked {
                txn.ask(self.query(claims_sql::MARK).bind(first.handler.0).bind(first.key.as_bytes())).await?;
            }
        }
        Ok(claimed)
    }

    /// Runs BEGIN, the settings of the transaction and the claim in one round trip, or in two if another transaction has
    /// inserted the same key meanwhile.
    async fn begin_with_claim(
        &self,
        handler_timeout: Duration,
        identity: &Identity,
    ) -> Result<(Txn, Claimed), StoreError> {
        let mut connection = self.pool().lent().await?;
        let begin = begin::lent(connection.session(), connection.kind(), handler_timeout);
        // Nothing of a message gets into the text except hexadecimal digits.
        let values = [
            identity.handler.0.to_string(),
            bytes(identity.key.as_bytes()),
            bytes(identity.fingerprint.as_bytes()),
            // The server's own number in milliseconds.
            format!("'{}'", connection.session().lock_timeout),
        ];
        let claim = match connection.is_pooled() {
            true => self.text_with(&claims_sql::claim_one(), &values),
            false => format!("EXECUTE idem_claim({})", values.join(", ")),
        };
        let mut answer = connection.text(format!("{begin} {claim}")).await;
        if answer.as_ref().is_err_and(|failure| failure.code() == Some("23505")) {
            let again = self.text_with(&claims_sql::claim_one(), &values);
            answer = connection.text(format!("ROLLBACK; {begin} {again}")).await;
        }
        let mut txn = Txn::of(connection, handler_timeout);
        match answer {
            Ok(rows) => {
                let claimed = txn.claimed(&rows, identity)?;
                Ok((txn, claimed))
            }
            Err(failure @ Failure::Lost(_)) => Err(failure.into()),
            Err(failure) => rollback::rollback(txn).await.and(Err(failure.fault(About::Messages))),
        }
    }

    async fn existing_claims(
        &self,
        txn: &mut Txn,
        identities: &[&Identity],
    ) -> Result<Vec<Option<ExistingClaim>>, StoreError> {
        self.read_claims(txn, identities, &claims_sql::existing_claims()).await
    }

    async fn unlocked_claims(
        &self,
        txn: &mut Txn,
        identities: &[&Identity],
    ) -> Result<Vec<Option<ExistingClaim>>, StoreError> {
        self.read_claims(txn, identities, &claims_sql::unlocked_claims()).await
    }

    async fn reopen(&self, txn: &mut Txn, identity: &Identity, left_by: &Ticket) -> Result<bool, StoreError> {
        let query = self.query(claims_sql::REOPEN).bind(identity.handler.0).bind(identity.key.as_bytes());
        Ok(!txn.ask(query.bind(&left_by.number)).await?.is_empty())
    }
}

impl Postgres {
    async fn read_claims(
        &self,
        txn: &mut Txn,
        identities: &[&Identity],
        statement: &str,
    ) -> Result<Vec<Option<ExistingClaim>>, StoreError> {
        let (handlers, keys) = columns(identities);
        let rows = txn.ask(self.query(statement).bind(&handlers).bind(&keys)).await?;
        let mut found = HashMap::<(i32, &[u8]), ExistingClaim>::with_capacity(rows.len());
        for row in &rows {
            let fingerprint = Fingerprint::stored(row.try_get(2)?);
            let age = row.try_get::<Option<i64>, _>(3)?.map(duration);
            found.insert((row.try_get(0)?, row.try_get(1)?), ExistingClaim { fingerprint, age });
        }
        Ok(handlers.into_iter().zip(keys).map(|at| found.remove(&at)).collect())
    }
}

impl Txn {
    /// Decodes the answer to the claim of one message. Its rows have the transaction id and how far claims were pruned, or the
    /// existing claim. There is none if the claim was committed while the statement ran.
    fn claimed(&mut self, rows: &[PgRow], identity: &Identity) -> Result<Claimed, StoreError> {
        let Some(row) = rows.first() else { return Ok(Claimed::Found(None)) };
        let Some(xid) = row.try_get::<Option<String>, _>(0)? else {
            let digits: &str = row.try_get(2)?;
            let fingerprint = hex::decode(digits).map_err(|error| StoreError::Unavailable(error.into()))?;
            let age = row.try_get::<Option<i64>, _>(3)?.map(duration);
            return Ok(Claimed::Found(Some(ExistingClaim { fingerprint: Fingerprint::stored(&fingerprint), age })));
        };
        self.guard(xid, Some(identity));
        Ok(Claimed::New { pruned_through: row.try_get::<Option<i64>, _>(1)?.map(time) })
    }
}

/// Handler ids and keys, for `unnest`.
pub(super) fn columns<'a>(identities: &[&'a Identity]) -> (Vec<i32>, Vec<&'a [u8]>) {
    identities.iter().map(|identity| (identity.handler.0, identity.key.as_bytes())).unzip()
}

pub(super) fn fingerprints<'a>(identities: &[&'a Identity]) -> Vec<&'a [u8]> {
    identities.iter().map(|identity| identity.fingerprint.as_bytes()).collect()
}
