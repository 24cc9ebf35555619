//! Claims: inserted, read, reopened, and dated by the start of an inbox row.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row as _};

use crate::store::{ClaimState, Claimed, Claims, ExistingClaim, HandlerId, History, Identity, StoreError, Ticket};
use crate::{Fingerprint, Key};

use super::answer::About;
use super::rows::{duration, time};
use super::state::bytes;
use super::{Postgres, Txn, begin, limits, many, register, rollback};

impl Txn {
    /// Decodes the answer to the claim. Its rows have the transaction id and how far claims were pruned, or the existing
    /// claim. There is none if the claim was committed while the statement ran.
    fn claimed(&mut self, rows: &[PgRow], identity: &Identity) -> Result<Claimed, StoreError> {
        let Some(row) = rows.first() else { return Ok(Claimed::Found(None)) };
        let Some(xid) = row.try_get::<Option<String>, _>(0)? else {
            return Ok(Claimed::Found(Some(ExistingClaim {
                fingerprint: fingerprint(row.try_get(2)?)?,
                age: row.try_get::<Option<i64>, _>(3)?.map(duration),
            })));
        };
        self.guard(xid, Some((identity.handler, identity.key.clone())));
        Ok(Claimed::New { pruned_through: pruned(row)? })
    }
}

/// Decodes a fingerprint in hexadecimal digits.
fn fingerprint(digits: &str) -> Result<Fingerprint, StoreError> {
    let bytes = hex::decode(digits).map_err(|error| StoreError::Unavailable(error.into()))?;
    Ok(Fingerprint::stored(&bytes))
}

/// Decodes the time in microseconds in the second column of the answer, a number or, in the simple protocol, text.
fn pruned(row: &PgRow) -> Result<Option<std::time::SystemTime>, StoreError> {
    Ok(row.try_get::<Option<i64>, _>(1)?.map(time))
}

impl Postgres {
    /// Claims in a new transaction, after a claim has failed because its key is in the table.
    async fn claim_again(
        &self,
        mut txn: Txn,
        identity: &Identity,
        state: ClaimState,
    ) -> Result<(Txn, Claimed), StoreError> {
        let claimed = match txn.begin_again().await {
            Ok(()) => self.claim(&mut txn, identity, state).await,
            Err(fault) => Err(fault),
        };
        match claimed {
            Ok(claimed) => Ok((txn, claimed)),
            Err(fault) if !fault.is_answered() => Err(fault),
            Err(fault) => rollback::rollback(txn).await.and(Err(fault)),
        }
    }
}

impl Claims for Postgres {
    async fn register(&self, consumer: &str, names: &[&str]) -> Result<Vec<HandlerId>, StoreError> {
        register::register(self, consumer, names).await
    }

    async fn rename(&self, consumer: &str, old: &str, new: &str) -> Result<bool, StoreError> {
        register::rename(self, consumer, old, new).await
    }

    async fn record_seen(&self, handlers: &[HandlerId]) -> Result<bool, StoreError> {
        register::record_seen(self, handlers).await
    }

    async fn histories(&self, consumer: &str) -> Result<Vec<History>, StoreError> {
        register::histories(self, consumer).await
    }

    async fn record_history(&self, handler: HandlerId) -> Result<(), StoreError> {
        register::record_history(self, handler).await
    }

    async fn retention(&self, handlers: &[HandlerId]) -> Result<Vec<Option<Duration>>, StoreError> {
        register::retention(self, handlers).await
    }

    async fn claim(&self, txn: &mut Txn, identity: &Identity, state: ClaimState) -> Result<Claimed, StoreError> {
        let lock_timeout = match state {
            ClaimState::Processed => Some(txn.lock_timeout()),
            // No handler follows, only idem's own statements.
            ClaimState::Waiting => None,
        };
        let query = self.sql().claim.query();
        let query = query.bind(identity.handler.0).bind(identity.key.as_bytes()).bind(identity.fingerprint.as_bytes());
        let rows = txn.ask(query.bind(state == ClaimState::Processed).bind(lock_timeout)).await?;
        txn.claimed(&rows, identity)
    }

    /// Runs BEGIN, the settings of the transaction and the claim in one round trip, or in three if another transaction has
    /// inserted the same key meanwhile, and in one more where a connection prepares its first claim of either kind.
    async fn begin_with_claim(
        &self,
        handler_timeout: Duration,
        identity: &Identity,
        state: ClaimState,
    ) -> Result<(Txn, Claimed), StoreError> {
        let mut connection = self.pool().lent().await?;
        if !connection.is_pooled() {
            connection.prepare_claim(&self.sql().prepare_claim).await?;
        }
        let begin = begin::lent(connection.session(), connection.kind(), handler_timeout);
        let lock_timeout = match state {
            // The server's own number in milliseconds.
            ClaimState::Processed => format!("'{}'", connection.session().lock_timeout),
            ClaimState::Waiting => "NULL".to_owned(),
        };
        // Nothing of a message gets into the text except hexadecimal digits.
        let values = [
            identity.handler.0.to_string(),
            bytes(identity.key.as_bytes()),
            bytes(identity.fingerprint.as_bytes()),
            (state == ClaimState::Processed).to_string(),
            lock_timeout,
        ];
        let claim = match connection.is_pooled() {
            true => self.sql().claim.with(&values),
            false => format!("EXECUTE idem_claim({})", values.join(", ")),
        };
        let answer = connection.ask(limits::OWN, sqlx::raw_sql(AssertSqlSafe(format!("{begin} {claim}")))).await;
        let mut txn = Txn::of(connection, handler_timeout);
        match answer {
            Ok(rows) => {
                let claimed = txn.claimed(&rows, identity)?;
                Ok((txn, claimed))
            }
            Err(failure @ super::answer::Failure::Lost(_)) => Err(failure.into()),
            // Another transaction has inserted the key meanwhile. Boxed: it is seldom used.
            Err(failure) if failure.code() == Some("23505") => Box::pin(self.claim_again(txn, identity, state)).await,
            Err(failure) => rollback::rollback(txn).await.and(Err(failure.fault(About::Messages))),
        }
    }

    async fn existing_claim(
        &self,
        txn: &mut Txn,
        handler: HandlerId,
        key: &Key,
    ) -> Result<Option<ExistingClaim>, StoreError> {
        let rows = txn.ask(self.sql().existing_claim.query().bind(handler.0).bind(key.as_bytes())).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(ExistingClaim {
            fingerprint: Fingerprint::stored(row.try_get(0)?),
            age: row.try_get::<Option<i64>, _>(1)?.map(duration),
        }))
    }

    async fn claim_many(
        &self,
        txn: &mut Txn,
        ids: &[&Identity],
        state: ClaimState,
    ) -> Result<Vec<Claimed>, StoreError> {
        many::claim_many(self, txn, ids, state).await
    }

    async fn existing_claims(
        &self,
        txn: &mut Txn,
        ids: &[&Identity],
    ) -> Result<Vec<Option<ExistingClaim>>, StoreError> {
        many::read_many(txn, ids, &self.sql().existing_claims).await
    }

    async fn unlocked_claims(
        &self,
        txn: &mut Txn,
        ids: &[&Identity],
    ) -> Result<Vec<Option<ExistingClaim>>, StoreError> {
        many::read_many(txn, ids, &self.sql().known).await
    }

    async fn reopen(&self, txn: &mut Txn, handler: HandlerId, key: &Key, left_by: &Ticket) -> Result<bool, StoreError> {
        let query = self.sql().reopen.query().bind(handler.0).bind(key.as_bytes()).bind(&left_by.number);
        Ok(!txn.ask(query).await?.is_empty())
    }
}
