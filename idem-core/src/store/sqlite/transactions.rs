//! The transactions of SQLite: begun, with claims or without, guarded, ended.

use std::time::Duration;

use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Row as _};

use super::answer::{ERROR, code, is_busy, unknown};
use super::claims::{self, REOPEN, begin_with_claim, bound};
use super::file::{Answers, BUSY_TIMEOUT, CHANGED, STATE};
use super::handle::Query;
use super::txn::{ended, not_committed, write};
use super::{Sqlite, Txn, sql};
use crate::store::{
    Answer, ClaimState, Claimed, CommitResult, ErrorClass, ExistingClaim, Identity, StoreError, StoreFacts,
    Transactions, TxnHandle, TxnOutcome, TxnState, log_conflicts,
};

/// Warns only once that a batch was split.
static LOGGED: std::sync::Once = std::sync::Once::new();

impl Transactions for Sqlite {
    type Txn = Txn;

    fn facts(&self) -> &StoreFacts {
        &self.facts
    }

    /// On the connection for reading, which waits neither in the queue of the writer nor long for another process.
    async fn ping(&self) -> Answer<()> {
        let probe = async |reader: &mut SqliteConnection| match sql::query(PROBE).execute(reader).await {
            Err(error) if !is_busy(&error) => Err(error),
            // If somebody else writes, writing is possible.
            _ => Ok(()),
        };
        self.read(probe).await
    }

    async fn begin(&self, handler_timeout: Duration) -> Answer<Txn> {
        self.open(handler_timeout, 1, sqlx::query("BEGIN IMMEDIATE")).await.map(|(txn, _)| txn)
    }

    /// Runs BEGIN, the claim, if there is one, and the guard's savepoint as one command.
    async fn begin_first(&self, handler_timeout: Duration, claim: Option<&Identity>) -> Answer<(Txn, Claimed)> {
        let (count, command) = match claim {
            Some(claim) => (3, bound(sql::query(&begin_with_claim()), claim, ClaimState::Processed)),
            None => (2, sqlx::query(r#"BEGIN IMMEDIATE; SAVEPOINT "idem_guard""#)),
        };
        let (mut txn, Answers { row, error, .. }) = self.open(handler_timeout, count, command).await?;
        let claimed = match (error, claim) {
            (Some(error), _) => Err(error),
            (None, Some(claim)) => claims::claimed(txn.connection(), claim, row).await,
            (None, None) => Ok(Claimed::New { pruned_through: None }),
        };
        match claimed.map_err(|error| self.file.fault_of_message(error)) {
            Ok(claimed) => {
                // Then a handler follows.
                if claimed.is_new() {
                    txn.mark_guarded(claim);
                }
                Ok((txn, claimed))
            }
            Err(fault) if !fault.is_answered() => Err(fault),
            Err(fault) => self.rollback(txn).await.and(Err(fault)),
        }
    }

    async fn claim(&self, txn: &mut Txn, identities: &[&Identity], state: ClaimState) -> Answer<Vec<Claimed>> {
        let mut claimed = Vec::with_capacity(identities.len());
        for identity in identities {
            let one = claims::insert(txn.connection(), identity, state).await;
            claimed.push(one.map_err(|error| self.file.fault_of_message(error))?);
        }
        // A handler runs only behind a new claim in state `Processed`, or without claims. All claims commit together, so the
        // outcome of one is the outcome of all.
        let new = identities.iter().zip(&claimed).find(|(_, claimed)| claimed.is_new());
        let is_needed = identities.is_empty() && !txn.guarded || new.is_some() && state == ClaimState::Processed;
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
    ) -> Answer<Vec<Option<ExistingClaim>>> {
        let mut existing = Vec::with_capacity(identities.len());
        for identity in identities {
            let one = claims::read(txn.connection(), identity).await;
            existing.push(one.map_err(|error| self.file.fault(error))?);
        }
        Ok(existing)
    }

    async fn reopen(&self, txn: &mut Txn, identity: &Identity, _: &TxnHandle) -> Answer<bool> {
        let query = sql::query(REOPEN).bind(identity.handler.0).bind(identity.key.as_bytes());
        let reopened = query.execute(txn.connection()).await.map_err(|error| self.file.fault_of_message(error))?;
        Ok(reopened.rows_affected() > 0)
    }

    /// Nothing is written outside of the transaction, so the commit detects that it has ended. But without the hooks, nothing
    /// would refuse the COMMIT of the next handler.
    async fn check_between(&self, txn: &mut Txn) -> Answer<TxnState> {
        txn.shared = true;
        Ok(if txn.connection.is_watched() { TxnState::Unknown } else { TxnState::Ended })
    }

    /// Runs the guard and COMMIT as one command.
    async fn commit(&self, mut txn: Txn) -> CommitResult {
        // The handler timeout ends before COMMIT starts.
        txn.connection.watch().limit(Duration::MAX);
        let mut conflicts = 0;
        if txn.shared || txn.has_writes() {
            // The guard, and another one: nothing is inserted behind a transaction that its handler has ended.
            if txn.guarded
                && let Err(error) = txn.connection.run(r#"RELEASE "idem_guard"; SAVEPOINT "idem_guard""#).await
            {
                return ended(self, txn, error).await;
            }
            if txn.shared && !txn.is_clean().await {
                LOGGED.call_once(|| {
                    tracing::warn!(
                        "{CHANGED}: such batches are split until each message is alone; undo it in the handler"
                    )
                });
                // Dropping the connection rolls back.
                return CommitResult::Refused(CHANGED.into());
            }
            conflicts = match write(&mut txn).await.map_err(|error| self.file.fault_of_message(error)) {
                Ok(conflicts) => conflicts,
                Err(StoreError::Message(error)) => return CommitResult::Refused(error),
                Err(fault) => return CommitResult::NotSent(fault, None),
            };
        }
        txn.connection.watch().end();
        let (guards, release) = if txn.guarded { (1, r#"RELEASE "idem_guard"; "#) } else { (0, "") };
        let command = sqlx::query(AssertSqlSafe(format!("{release}COMMIT; {STATE}")));
        let Answers { finished, row, error } = txn.connection.run_all(guards + 2, command).await;
        match error {
            Some(error) if finished < guards => return ended(self, txn, error).await,
            Some(error) if finished == guards => return not_committed(self, txn, error).await,
            // The state of the connection is unknown, and so it is closed.
            Some(_) => {}
            None => {
                txn.connection.watch().release();
                let state = row.and_then(|row| row.try_get::<String, _>(0).ok());
                if state.is_some_and(|state| txn.connection.is_initial(&state)) {
                    txn.connection.put_back();
                }
            }
        }
        log_conflicts(conflicts);
        CommitResult::Done
    }

    /// There is one writer, so no transaction loses a race; and statements prepare themselves again in an outdated session.
    fn classify_error(&self, _: Option<&mut Txn>, _: &(dyn std::error::Error + 'static)) -> ErrorClass {
        ErrorClass::Ordinary
    }

    async fn rollback(&self, mut txn: Txn) -> Answer<TxnOutcome> {
        txn.connection.watch().limit(Duration::MAX);
        if txn.guarded
            && let Err(error) = txn.connection.run(r#"ROLLBACK TO "idem_guard""#).await
        {
            return match ended(self, txn, error).await {
                CommitResult::CommittedEarly(_) => Ok(TxnOutcome::CommittedEarly),
                CommitResult::CommitRefused => Ok(TxnOutcome::CommitRefused),
                CommitResult::Refused(_) => Ok(TxnOutcome::Unbegun),
                CommitResult::Unknown(fault) => Err(fault),
                _ => Ok(TxnOutcome::RolledBack),
            };
        }
        txn.connection.watch().release();
        match txn.connection.run("ROLLBACK").await {
            Ok(()) => {
                // Temporary objects that were made in the transaction are gone.
                if txn.is_clean().await {
                    txn.connection.put_back();
                }
            }
            // There is none: a handler without a guard has ended it.
            Err(error) if code(&error) == Some(ERROR) => {}
            Err(error) => return Err(unknown(&self.file.path, error)),
        }
        Ok(TxnOutcome::RolledBack)
    }

    fn txn_handle(&self, txn: &Txn) -> Option<TxnHandle> {
        txn.connection.watch().refused().then(TxnHandle::default)
    }

    async fn txn_outcome(&self, _: &TxnHandle) -> Answer<TxnOutcome> {
        Ok(TxnOutcome::CommitRefused)
    }
}

impl Sqlite {
    /// Begins by a command of `count` statements, the first of which is BEGIN, and returns the answer to the others. Each command of
    /// a connection is handed to its thread and answered from there, which costs more than most statements. The handler timeout
    /// starts when this is the writer.
    async fn open(&self, handler_timeout: Duration, count: usize, command: Query<'_>) -> Answer<(Txn, Answers)> {
        let mut connection = self.file.writer().await?;
        // BEGIN may wait for another process, which takes none of the handler's time.
        connection.watch().limit(handler_timeout.saturating_add(BUSY_TIMEOUT));
        let mut answer = connection.run_all(count, command).await;
        if answer.finished == 0
            && let Some(error) = answer.error.take()
        {
            let fault = self.file.fault(error);
            if matches!(fault, StoreError::LockTimeout) {
                connection.watch().limit(Duration::MAX);
                connection.put_back();
            }
            return Err(fault);
        }
        connection.watch().limit(handler_timeout);
        Ok((Txn::of(connection), answer))
    }

    /// Runs statements in one of idem's own transactions, in which no handler runs, and commits.
    pub(super) async fn in_transaction<T>(&self, work: impl AsyncFnOnce(&mut Txn) -> sqlx::Result<T>) -> Answer<T> {
        let mut txn = self.begin(Duration::MAX).await?;
        let done = work(&mut txn).await.map_err(|error| self.file.fault(error))?;
        self.commit(txn).await.of_own().map(|()| done)
    }
}

/// Writes a page, because a full or read-only disk allows everything else.
const PROBE: &str = r#"UPDATE "idem_pruner" SET id = id"#;
