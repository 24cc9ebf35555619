//! Claims, each in a transaction.

use std::sync::Arc;
use std::time::Duration;

use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Row as _};

use super::file::Answer;
use super::sql::{duration, time};
use super::{Sqlite, Txn, begin, register, txn};
use crate::store::{ClaimState, Claimed, Claims, ExistingClaim, HandlerId, History, Identity, StoreError, Ticket};
use crate::{Fingerprint, Key};

/// SQLite does not record which transaction has changed a row, and needs no such check: the commit hook refuses each
/// COMMIT that a handler awaits, so a claim is reopened only if the handler has not awaited one, or has removed the
/// hook. The answer can then be lost only if the disk fails at this very COMMIT, since the database is in this process.
const REOPEN: &str = r#"
UPDATE "idem_processed_messages" SET processed_at = NULL
WHERE handler_id = ?1 AND key = ?2 AND processed_at IS NOT NULL"#;

const COMMITTED: &str = r#"SELECT EXISTS (SELECT 1 FROM "idem_processed_messages" WHERE handler_id = ?1 AND key = ?2)"#;

pub(super) async fn claim_many(
    store: &Sqlite,
    txn: &mut Txn,
    identities: &[&Identity],
    state: ClaimState,
) -> Result<Vec<Claimed>, StoreError> {
    let mut claimed = Vec::with_capacity(identities.len());
    for identity in identities {
        let one = insert(store, txn.connection(), identity, state).await;
        claimed.push(one.map_err(|error| store.file.fault_of_message(error))?);
    }
    // A handler runs only after a claim in state `Processed`. All claims commit together, so the fate of one is the
    // fate of all.
    let new = identities.iter().zip(&claimed).find(|(_, claimed)| claimed.is_new());
    if let (Some((identity, _)), ClaimState::Processed) = (new, state) {
        txn.guard(Some((identity.handler, &identity.key))).await.map_err(|error| store.file.fault(error))?;
    }
    Ok(claimed)
}

pub(super) async fn insert(
    store: &Sqlite,
    connection: &mut SqliteConnection,
    identity: &Identity,
    state: ClaimState,
) -> Result<Claimed, sqlx::Error> {
    let inserted = bound(store.statements.claim(), identity, state).fetch_optional(&mut *connection).await?;
    claimed(store, connection, identity, inserted).await
}

/// Returns whether a committed transaction has made the claim.
pub(super) async fn is_committed(store: &Sqlite, identity: &Identity) -> Result<bool, StoreError> {
    let query = sqlx::query_scalar(store.prefix.sql(COMMITTED)).bind(identity.handler.0).bind(identity.key.as_bytes());
    let mut reader = store.file.reader().await?;
    let found = query.fetch_one(&mut reader.connection).await.map_err(|error| store.file.fault(error))?;
    reader.give_back();
    Ok(found)
}

/// Binds the values of a claim to its statement, or to a command with it.
fn bound(
    text: AssertSqlSafe<Arc<str>>,
    identity: &Identity,
    state: ClaimState,
) -> Query<'_, sqlx::Sqlite, SqliteArguments> {
    let query = sqlx::query(text).bind(identity.handler.0).bind(identity.key.as_bytes());
    query.bind(identity.fingerprint.as_bytes()).bind(state == ClaimState::Processed)
}

/// Decodes the answer to a claim, which has a row if it was inserted.
async fn claimed(
    store: &Sqlite,
    connection: &mut SqliteConnection,
    identity: &Identity,
    inserted: Option<SqliteRow>,
) -> Result<Claimed, sqlx::Error> {
    match inserted {
        Some(row) => Ok(Claimed::New { pruned_through: row.try_get::<Option<i64>, _>(0)?.map(time) }),
        None => Ok(Claimed::Found(read(store, connection, identity.handler, &identity.key).await?)),
    }
}

/// Decodes the answer to BEGIN with a claim, and guards the transaction if a handler follows.
async fn begun_claim(
    store: &Sqlite,
    txn: &mut Txn,
    answer: Answer,
    identity: &Identity,
    state: ClaimState,
) -> Result<Claimed, StoreError> {
    let Answer { finished, row, error } = answer;
    match error {
        // Only BEGIN has finished.
        Some(error) if finished == 1 => return Err(store.file.fault_of_message(error)),
        Some(error) => return Err(store.file.fault(error)),
        None => {}
    }
    let claimed = claimed(store, txn.connection(), identity, row).await;
    let claimed = claimed.map_err(|error| store.file.fault_of_message(error))?;
    if claimed.is_new() && state == ClaimState::Processed {
        txn.mark_guarded(Some((identity.handler, &identity.key)));
    }
    Ok(claimed)
}

/// The transaction is the single writer, so no other connection can delete the claim before it ends.
async fn read(
    store: &Sqlite,
    connection: &mut SqliteConnection,
    handler: HandlerId,
    key: &Key,
) -> Result<Option<ExistingClaim>, sqlx::Error> {
    let query = sqlx::query(store.statements.existing_claim()).bind(handler.0).bind(key.as_bytes());
    let Some(row) = query.fetch_optional(connection).await? else { return Ok(None) };
    Ok(Some(ExistingClaim {
        fingerprint: Fingerprint::stored(row.try_get("fingerprint")?),
        age: row.try_get::<Option<i64>, _>("age")?.map(duration),
    }))
}

impl Claims for Sqlite {
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
        let claimed = claim_many(self, txn, &[identity], state).await?;
        Ok(claimed.first().copied().unwrap_or(Claimed::Found(None)))
    }

    /// Runs BEGIN, the claim and the guard's savepoint as one command.
    async fn begin_with_claim(
        &self,
        handler_timeout: Duration,
        identity: &Identity,
        state: ClaimState,
    ) -> Result<(Txn, Claimed), StoreError> {
        let command = bound(self.statements.begin_with_claim(), identity, state);
        let (mut txn, answer) = begin::begin_with(self, handler_timeout, 3, command).await?;
        match begun_claim(self, &mut txn, answer, identity, state).await {
            Ok(claimed) => Ok((txn, claimed)),
            Err(fault) if !fault.is_answered() => Err(fault),
            Err(fault) => txn::rollback(self, txn).await.and(Err(fault)),
        }
    }

    async fn existing_claim(
        &self,
        txn: &mut Txn,
        handler: HandlerId,
        key: &Key,
    ) -> Result<Option<ExistingClaim>, StoreError> {
        read(self, txn.connection(), handler, key).await.map_err(|error| self.file.fault(error))
    }

    async fn claim_many(
        &self,
        txn: &mut Txn,
        ids: &[&Identity],
        state: ClaimState,
    ) -> Result<Vec<Claimed>, StoreError> {
        claim_many(self, txn, ids, state).await
    }

    async fn reopen(&self, txn: &mut Txn, handler: HandlerId, key: &Key, _: &Ticket) -> Result<bool, StoreError> {
        let query = sqlx::query(self.prefix.sql(REOPEN)).bind(handler.0).bind(key.as_bytes());
        let reopened = query.execute(txn.connection()).await.map_err(|error| self.file.fault_of_message(error))?;
        Ok(reopened.rows_affected() > 0)
    }
}
