//! The transactions of SQLite.

use std::time::Duration;

use sqlx::sqlite::SqliteConnection;

use super::answer::is_busy;
use super::claims::{self, bound};
use super::claims_sql::{REOPEN, begin_with_claim};
use super::{Sqlite, Txn, begin, txn};
use crate::store::{
    ClaimState, Claimed, CommitResult, ErrorClass, ExistingClaim, Fate, Identity, RollbackResult, StoreError,
    StoreFacts, Ticket, Transactions, TxnState,
};

impl Transactions for Sqlite {
    type Txn = Txn;

    fn facts(&self) -> &StoreFacts {
        &self.facts
    }

    /// On the connection for reading, which waits neither in the queue of the writer nor long for another process.
    async fn ping(&self) -> Result<(), StoreError> {
        let probe = async |store: &Self, reader: &mut SqliteConnection| match store.query(PROBE).execute(reader).await {
            Err(error) if !is_busy(&error) => Err(error),
            // If somebody else writes, writing is possible.
            _ => Ok(()),
        };
        self.read(probe).await
    }

    async fn begin(&self, handler_timeout: Duration) -> Result<Txn, StoreError> {
        let begun = begin::begin(self, handler_timeout, 1, sqlx::query("BEGIN IMMEDIATE")).await;
        begun.map(|(txn, _)| txn)
    }

    /// Runs BEGIN, the claim, if there is one, and the guard's savepoint as one command.
    async fn begin_first(
        &self,
        handler_timeout: Duration,
        claim: Option<&Identity>,
    ) -> Result<(Txn, Claimed), StoreError> {
        let (count, command) = match claim {
            Some(claim) => (3, bound(self.query(&begin_with_claim()), claim, ClaimState::Processed)),
            None => (2, sqlx::query(r#"BEGIN IMMEDIATE; SAVEPOINT "idem_guard""#)),
        };
        let (mut txn, answer) = begin::begin(self, handler_timeout, count, command).await?;
        match claims::begun(self, &mut txn, answer, claim).await {
            Ok(claimed) => Ok((txn, claimed)),
            Err(fault) if !fault.is_answered() => Err(fault),
            Err(fault) => txn::rollback(self, txn).await.and(Err(fault)),
        }
    }

    async fn claim(
        &self,
        txn: &mut Txn,
        identities: &[&Identity],
        state: ClaimState,
    ) -> Result<Vec<Claimed>, StoreError> {
        let mut claimed = Vec::with_capacity(identities.len());
        for identity in identities {
            let one = claims::insert(self, txn.connection(), identity, state).await;
            claimed.push(one.map_err(|error| self.file.fault_of_message(error))?);
        }
        // A handler runs only behind a new claim in state `Processed`, or without claims. All claims commit together, so the
        // fate of one is the fate of all.
        let new = identities.iter().zip(&claimed).find(|(_, claimed)| claimed.is_new());
        let is_needed =
            identities.is_empty() && txn.guarded.is_none() || new.is_some() && state == ClaimState::Processed;
        if is_needed {
            txn.guard(new.map(|(identity, _)| *identity)).await.map_err(|error| self.file.fault(error))?;
        }
        Ok(claimed)
    }

    /// It is the only writer, so no claim is deleted before its end, with or without a lock.
    async fn existing_claims(
        &self,
        txn: &mut Txn,
        identities: &[&Identity],
        _lock: bool,
    ) -> Result<Vec<Option<ExistingClaim>>, StoreError> {
        let mut existing = Vec::with_capacity(identities.len());
        for identity in identities {
            let one = claims::read(self, txn.connection(), identity).await;
            existing.push(one.map_err(|error| self.file.fault(error))?);
        }
        Ok(existing)
    }

    async fn reopen(&self, txn: &mut Txn, identity: &Identity, _: &Ticket) -> Result<bool, StoreError> {
        let query = self.query(REOPEN).bind(identity.handler.0).bind(identity.key.as_bytes());
        let reopened = query.execute(txn.connection()).await.map_err(|error| self.file.fault_of_message(error))?;
        Ok(reopened.rows_affected() > 0)
    }

    /// Nothing is written outside of the transaction, so the commit detects that it has ended. But without the hooks, nothing
    /// would refuse the COMMIT of the next handler.
    async fn check_between(&self, txn: &mut Txn) -> Result<TxnState, StoreError> {
        txn.shared = true;
        Ok(if txn.connection.is_watched() { TxnState::Unknown } else { TxnState::Ended })
    }

    async fn commit(&self, txn: Txn) -> CommitResult {
        txn::commit(self, txn).await
    }

    /// There is one writer, so no transaction loses a race; and statements prepare themselves again in an outdated session.
    fn classify_error(&self, _: Option<&mut Txn>, _: &(dyn std::error::Error + 'static)) -> ErrorClass {
        ErrorClass::Ordinary
    }

    async fn rollback(&self, txn: Txn) -> Result<RollbackResult, StoreError> {
        txn::rollback(self, txn).await
    }

    fn ticket(&self, txn: &Txn) -> Option<Ticket> {
        txn.connection.watch().refused().then(Ticket::default)
    }

    async fn fate(&self, _: &Ticket) -> Result<Fate, StoreError> {
        Ok(Fate::CommitRefused)
    }
}

impl Sqlite {
    /// Runs statements in one of idem's own transactions, in which no handler runs, and commits.
    pub(super) async fn in_transaction<T>(
        &self,
        work: impl AsyncFnOnce(&Self, &mut Txn) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let mut txn = self.begin(Duration::MAX).await?;
        let done = work(self, &mut txn).await.map_err(|error| self.file.fault(error))?;
        txn::commit(self, txn).await.of_own().map(|()| done)
    }
}

/// Writes a page, because a full or read-only disk allows everything else.
const PROBE: &str = r#"UPDATE "idem_pruner" SET id = id"#;
