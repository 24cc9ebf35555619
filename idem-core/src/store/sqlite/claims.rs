//! Handlers and their claims.

use std::time::Duration;

use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{Row as _, SqlStr};

use super::claims_sql::{HISTORIES, RECORD_HISTORY, REOPEN, RETENTION, SEEN, STALE};
use super::file::Answer;
use super::sql::{duration, ids, time};
use super::{Sqlite, Txn, begin, register, txn};
use crate::Fingerprint;
use crate::store::{
    ClaimState, Claimed, Claims, ExistingClaim, HandlerId, History, Identity, StoreError, Ticket, tell_of_retention,
};

pub(super) async fn insert(
    store: &Sqlite,
    connection: &mut SqliteConnection,
    identity: &Identity,
    state: ClaimState,
) -> Result<Claimed, sqlx::Error> {
    let inserted = bound(store.statements.claim.clone(), identity, state).fetch_optional(&mut *connection).await?;
    claimed(store, connection, identity, inserted).await
}

/// Reads a claim. In a transaction, which is the single writer, no other connection can delete it before the end.
pub(super) async fn read(
    store: &Sqlite,
    connection: &mut SqliteConnection,
    identity: &Identity,
) -> Result<Option<ExistingClaim>, sqlx::Error> {
    let query =
        sqlx::query(store.statements.existing_claim.clone()).bind(identity.handler.0).bind(identity.key.as_bytes());
    let Some(row) = query.fetch_optional(connection).await? else { return Ok(None) };
    Ok(Some(ExistingClaim {
        fingerprint: Fingerprint::stored(row.try_get("fingerprint")?),
        age: row.try_get::<Option<i64>, _>("age")?.map(duration),
    }))
}

/// Binds the values of a claim to its statement, or to a command with it.
fn bound(text: SqlStr, identity: &Identity, state: ClaimState) -> Query<'_, sqlx::Sqlite, SqliteArguments> {
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
        None => Ok(Claimed::Found(read(store, connection, identity).await?)),
    }
}

/// Decodes the answer to BEGIN with a claim, and guards the transaction if the claim is new: then a handler follows.
async fn begun_claim(
    store: &Sqlite,
    txn: &mut Txn,
    answer: Answer,
    identity: &Identity,
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
    if claimed.is_new() {
        txn.mark_guarded(Some(identity));
    }
    Ok(claimed)
}

impl Claims for Sqlite {
    async fn register(&self, consumer: &str, names: &[&str]) -> Result<Vec<HandlerId>, StoreError> {
        let work = async |store: &Self, txn: &mut Txn| {
            let mut handlers = Vec::with_capacity(names.len());
            for name in names {
                handlers.push(register::intern(store, txn.connection(), consumer, name).await?);
            }
            Ok(handlers)
        };
        let handlers = self.in_transaction(work).await?;
        let stored = self.retention(&handlers).await?.into_iter().max().flatten();
        tell_of_retention(consumer, self.retention, stored, |millis| {
            let (prefix, consumer) = (self.prefix.as_str(), consumer.replace('\'', "''"));
            format!("UPDATE {prefix}handlers SET retention = {millis} WHERE consumer = '{consumer}'")
        });
        Ok(handlers)
    }

    async fn rename(&self, consumer: &str, old: &str, new: &str) -> Result<bool, StoreError> {
        self.in_transaction(async |store, txn| register::rename(store, txn.connection(), consumer, old, new).await)
            .await
    }

    /// Reads first, because reading never waits: then only one of the file's workers has to write.
    async fn record_seen(&self, handlers: &[HandlerId]) -> Result<bool, StoreError> {
        let handlers = ids(handlers);
        let stale = async |store: &Self, reader: &mut SqliteConnection| {
            sqlx::query_as(store.prefix.sql(STALE)).bind(&handlers).fetch_one(reader).await
        };
        let (stale, are_there): (i64, bool) = self.read(stale).await?;
        if stale > 0 {
            self.change(sqlx::query(self.prefix.sql(SEEN)).bind(&handlers)).await?;
        }
        Ok(are_there)
    }

    async fn histories(&self, consumer: &str) -> Result<Vec<History>, StoreError> {
        let read = async |store: &Self, reader: &mut SqliteConnection| {
            sqlx::query_as(store.prefix.sql(HISTORIES)).bind(consumer).fetch_all(reader).await
        };
        let rows: Vec<(String, i64, bool, String)> = self.read(read).await?;
        let history = |(handler, seen, has_claims, formerly): (_, _, _, String)| {
            let (seen, formerly) = (duration(seen), serde_json::from_str(&formerly).unwrap_or_default());
            History { handler, seen, has_claims, formerly }
        };
        Ok(rows.into_iter().map(history).collect())
    }

    async fn record_history(&self, handler: HandlerId) -> Result<(), StoreError> {
        self.change(sqlx::query(self.prefix.sql(RECORD_HISTORY)).bind(handler.0)).await.map(drop)
    }

    async fn retention(&self, handlers: &[HandlerId]) -> Result<Vec<Option<Duration>>, StoreError> {
        let read = async |store: &Self, reader: &mut SqliteConnection| {
            let mut retentions = Vec::with_capacity(handlers.len());
            for handler in handlers {
                let query = sqlx::query_scalar::<_, Option<i64>>(store.prefix.sql(RETENTION)).bind(handler.0);
                retentions.push(query.fetch_optional(&mut *reader).await?.flatten().map(duration));
            }
            Ok(retentions)
        };
        self.read(read).await
    }

    async fn claim(
        &self,
        txn: &mut Txn,
        identities: &[&Identity],
        state: ClaimState,
    ) -> Result<Vec<Claimed>, StoreError> {
        let mut claimed = Vec::with_capacity(identities.len());
        for identity in identities {
            let one = insert(self, txn.connection(), identity, state).await;
            claimed.push(one.map_err(|error| self.file.fault_of_message(error))?);
        }
        // A handler runs only after a claim in state `Processed`. All claims commit together, so the fate of one is the
        // fate of all.
        let new = identities.iter().zip(&claimed).find(|(_, claimed)| claimed.is_new());
        if let (Some((identity, _)), ClaimState::Processed) = (new, state) {
            txn.guard(Some(identity)).await.map_err(|error| self.file.fault(error))?;
        }
        Ok(claimed)
    }

    /// Runs BEGIN, the claim and the guard's savepoint as one command.
    async fn begin_with_claim(
        &self,
        handler_timeout: Duration,
        identity: &Identity,
    ) -> Result<(Txn, Claimed), StoreError> {
        let command = bound(self.statements.begin_with_claim.clone(), identity, ClaimState::Processed);
        let (mut txn, answer) = begin::begin_with(self, handler_timeout, 3, command).await?;
        match begun_claim(self, &mut txn, answer, identity).await {
            Ok(claimed) => Ok((txn, claimed)),
            Err(fault) if !fault.is_answered() => Err(fault),
            Err(fault) => txn::rollback(self, txn).await.and(Err(fault)),
        }
    }

    async fn existing_claims(
        &self,
        txn: &mut Txn,
        identities: &[&Identity],
    ) -> Result<Vec<Option<ExistingClaim>>, StoreError> {
        let mut existing = Vec::with_capacity(identities.len());
        for identity in identities {
            let one = read(self, txn.connection(), identity).await;
            existing.push(one.map_err(|error| self.file.fault(error))?);
        }
        Ok(existing)
    }

    async fn reopen(&self, txn: &mut Txn, identity: &Identity, _: &Ticket) -> Result<bool, StoreError> {
        let query = sqlx::query(self.prefix.sql(REOPEN)).bind(identity.handler.0).bind(identity.key.as_bytes());
        let reopened = query.execute(txn.connection()).await.map_err(|error| self.file.fault_of_message(error))?;
        Ok(reopened.rows_affected() > 0)
    }
}
