//! Claims: inserted one by one, and read.

use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::Sqlite;
use super::claims_sql::{CLAIM, EXISTING_CLAIM};
use super::handle::Query;
use super::sql::{duration, time};
use crate::Fingerprint;
use crate::store::{ClaimState, Claimed, ExistingClaim, Identity};

pub(super) async fn insert(
    store: &Sqlite,
    connection: &mut SqliteConnection,
    identity: &Identity,
    state: ClaimState,
) -> Result<Claimed, sqlx::Error> {
    let inserted = bound(store.query(CLAIM), identity, state).fetch_optional(&mut *connection).await?;
    claimed(store, connection, identity, inserted).await
}

/// Reads a claim. In a transaction, which is the single writer, no other connection can delete it before the end.
pub(super) async fn read(
    store: &Sqlite,
    connection: &mut SqliteConnection,
    identity: &Identity,
) -> Result<Option<ExistingClaim>, sqlx::Error> {
    let query = sqlx::query_as::<_, (Vec<u8>, Option<i64>)>(store.prefix.sql(EXISTING_CLAIM));
    let found = query.bind(identity.handler.0).bind(identity.key.as_bytes()).fetch_optional(connection).await?;
    Ok(found.map(|(found, age)| ExistingClaim { fingerprint: Fingerprint::stored(&found), age: age.map(duration) }))
}

/// Binds the values of a claim to its statement, or to a command with it.
pub(super) fn bound<'q>(query: Query<'q>, identity: &Identity, state: ClaimState) -> Query<'q> {
    let query = query.bind(identity.handler.0).bind(identity.key.as_bytes());
    query.bind(identity.fingerprint.as_bytes()).bind(state == ClaimState::Processed)
}

/// Decodes the answer to a claim, which has a row if it was inserted.
pub(super) async fn claimed(
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
