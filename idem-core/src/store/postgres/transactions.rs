//! The transactions of PostgreSQL: begun, with claims or without, guarded, checked.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::Fingerprint;
use crate::store::{
    Answer, ClaimState, Claimed, CommitResult, ErrorClass, ExistingClaim, Identity, StoreError, StoreFacts,
    Transactions, TxnHandle, TxnOutcome, TxnState,
};

use super::answer::{self, About, Failure};
use super::commit::check;
use super::limits::{OWN, Use};
use super::quote::bytes;
use super::rows::{self, columns, duration, fingerprints, time};
use super::state::RESET;
use super::txn::not_answered;
use super::{Postgres, Txn, begin, claims_sql, commit, rollback};

/// How long a claim of several messages waits for a lock, in milliseconds: enough for a commit. If it waited as long as
/// a claim of one message does, one held claim would delay all others, which are available at once.
const MANY_WAIT: u64 = 100;

impl Transactions for Postgres {
    type Txn = Txn;

    fn facts(&self) -> &StoreFacts {
        &self.0.facts
    }

    /// Writes and commits, as a worker does: a database that is read-only, full or without its tables still answers
    /// `SELECT 1`, and consumption would continue and pause for each message. No handler has the id 0.
    async fn ping(&self) -> Answer<()> {
        let mut connection = self.0.pool.own_at_once().await?;
        let begin = connection.begin(OWN);
        let probe = self.text_with(claims_sql::PING, &[bytes(Uuid::new_v4().as_bytes())]);
        connection.text(format!("{begin} {probe}; COMMIT")).await?;
        connection.put_back();
        Ok(())
    }

    async fn begin(&self, handler_timeout: Duration) -> Answer<Txn> {
        let mut connection = self.0.pool.connection(Use::Lent).await?;
        // On any failure the connection is dropped: a transaction may be open in it.
        connection.text(connection.begin(handler_timeout)).await?;
        Ok(Txn::of(connection, handler_timeout))
    }

    /// Runs BEGIN, the settings of the transaction and the claim in one round trip, or in two if another transaction has
    /// inserted the same key meanwhile.
    async fn begin_first(&self, handler_timeout: Duration, claim: Option<&Identity>) -> Answer<(Txn, Claimed)> {
        let mut connection = self.0.pool.connection(Use::Lent).await?;
        let Some(identity) = claim else {
            let text = begin::guarded(&connection.ready.session, connection.kind(), handler_timeout);
            let begun = connection.text(text).await?;
            let mut txn = Txn::of(connection, handler_timeout);
            txn.guard(begun.last().ok_or_else(not_answered)?.try_get(0)?, None);
            return Ok((txn, Claimed::New { pruned_through: None }));
        };
        let begin = connection.begin(handler_timeout);
        // Nothing of a message gets into the text except hexadecimal digits.
        let values = [
            identity.handler.0.to_string(),
            bytes(identity.key.as_bytes()),
            bytes(identity.fingerprint.as_bytes()),
            // The server's own number in milliseconds.
            format!("'{}'", connection.ready.session.lock_timeout),
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

    async fn claim(&self, txn: &mut Txn, identities: &[&Identity], state: ClaimState) -> Answer<Vec<Claimed>> {
        if identities.is_empty() {
            return txn.guard_unclaimed().await.map(|()| Vec::new());
        }
        let own = txn.lock_wait;
        let wait = own.min(MANY_WAIT);
        // No handler follows a claim that waits, only idem's own statements.
        let handlers_own = (state == ClaimState::Processed).then(|| txn.lock_timeout());
        let (handlers, keys) = columns(identities);
        let claim = |statement: &str| {
            let query = self.query(statement).bind(&handlers).bind(&keys).bind(fingerprints(identities));
            let query = query.bind(state == ClaimState::Processed).bind(wait.to_string());
            query.bind(handlers_own.clone()).bind(own.to_string())
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
        let pruned: Vec<Option<i64>> = row.try_get(4)?;
        // In the order of the identities.
        let (handlers, keys): (Vec<i32>, Vec<Vec<u8>>) = (row.try_get(0)?, row.try_get(1)?);
        let mut new = handlers.into_iter().zip(keys).peekable();
        let claimed = |(identity, pruned): (&&Identity, Option<i64>)| match new
            .next_if(|(handler, key)| (*handler, &key[..]) == identity.sort_key())
        {
            Some(_) => Claimed::New { pruned_through: pruned.map(time) },
            None => Claimed::Found(None),
        };
        let claimed: Vec<Claimed> = identities.iter().zip(pruned).map(claimed).collect();
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

    async fn existing_claims(
        &self,
        txn: &mut Txn,
        identities: &[&Identity],
        lock: bool,
    ) -> Answer<Vec<Option<ExistingClaim>>> {
        let (handlers, keys) = columns(identities);
        let rows = txn.ask(self.query(&claims_sql::existing_claims(lock)).bind(&handlers).bind(&keys)).await?;
        let mut found = HashMap::<(i32, &[u8]), ExistingClaim>::with_capacity(rows.len());
        for row in &rows {
            let fingerprint = Fingerprint::stored(row.try_get(2)?);
            let age = row.try_get::<Option<i64>, _>(3)?.map(duration);
            found.insert((row.try_get(0)?, row.try_get(1)?), ExistingClaim { fingerprint, age });
        }
        Ok(handlers.into_iter().zip(keys).map(|at| found.remove(&at)).collect())
    }

    async fn reopen(&self, txn: &mut Txn, identity: &Identity, left_by: &TxnHandle) -> Answer<bool> {
        let query = self.query(claims_sql::REOPEN).bind(identity.handler.0).bind(identity.key.as_bytes());
        Ok(!txn.ask(query.bind(&left_by.number)).await?.is_empty())
    }

    /// If nothing can be written outside of idem's transactions, the guard alone checks whether it is still open.
    ///
    /// Behind a pooler nobody knows that. A ROLLBACK of the handler returns its session, and the pooler lends another one to
    /// the next statement, which may be one that another client has made writable.
    async fn check_between(&self, txn: &mut Txn) -> Answer<TxnState> {
        txn.shared = true;
        if !txn.connection.counts_transaction() {
            return Ok(TxnState::Ended);
        }
        let resets = txn.connection.resets();
        if !txn.connection.is_pooled() && txn.connection.ready.session.read_only && !resets {
            return Ok(TxnState::Unknown);
        }
        let Some(xid) = &txn.xid else { return Ok(TxnState::Unknown) };
        let level = txn.connection.ready.session.synchronous_commit();
        let mut text = check(&format!("'{xid}'::pg_catalog.xid8"), None, level);
        if resets {
            // RESET ALL removes the limits of this transaction as well.
            let session = &txn.connection.ready.session;
            let lasting = if txn.connection.is_pooled() { &*session.state.lasting } else { "" };
            let limits = begin::limits(session, txn.connection.kind(), txn.handler_timeout, &session.lock_timeout);
            text += &format!("; {RESET};{lasting} {limits}");
        }
        if !txn.connection.sound {
            return Err(not_answered());
        }
        txn.connection.flush().await?;
        match txn.connection.text(text).await {
            Ok(_) => Ok(TxnState::Open),
            Err(Failure::Refused(_)) => Ok(TxnState::Ended),
            Err(lost) => Err(lost.into()),
        }
    }

    async fn commit(&self, txn: Txn) -> CommitResult {
        commit::commit(self, txn).await
    }

    fn classify_error(&self, txn: Option<&mut Txn>, error: &(dyn std::error::Error + 'static)) -> ErrorClass {
        // What sqlx knows of the session may be outdated as well.
        if let Some(txn) = txn.filter(|_| answer::is_outdated(error))
            && txn.connection.is_outdated()
        {
            return ErrorClass::Outdated;
        }
        answer::race(error)
    }

    async fn rollback(&self, txn: Txn) -> Answer<TxnOutcome> {
        rollback::rollback(txn).await
    }

    fn txn_handle(&self, txn: &Txn) -> Option<TxnHandle> {
        txn.txn_handle()
    }

    async fn txn_outcome(&self, txn_handle: &TxnHandle) -> Answer<TxnOutcome> {
        self.txn_outcome_of(txn_handle).await
    }
}

impl Txn {
    /// Guards it without a claim. New claims guard it already. A COMMIT is not refused: messages without claims run again.
    async fn guard_unclaimed(&mut self) -> Answer<()> {
        if self.xid.is_some() {
            return Ok(());
        }
        // As the claims of a batch do, it restores the session's lock timeout for the handlers, as the server has shown it.
        let lock_timeout = self.lock_timeout();
        let text = format!("SELECT pg_catalog.pg_current_xact_id()::text; SET LOCAL lock_timeout = '{lock_timeout}'");
        self.fresh = false;
        let rows = self.connection.text(text).await.map_err(|failure| failure.fault(About::Messages))?;
        let (xid,): (String,) = rows::one(&rows)?;
        self.guard(xid, None);
        Ok(())
    }

    /// Decodes the answer to the claim of one message. Its rows have the transaction id and how far claims were pruned, or the
    /// existing claim. There is none if the claim was committed while the statement ran.
    fn claimed(&mut self, rows: &[PgRow], identity: &Identity) -> Answer<Claimed> {
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
