//! Claims: inserted one by one, and read.

use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::handle::Query;
use super::sql::{self, duration, time};
use crate::Fingerprint;
use crate::store::{ClaimState, Claimed, ExistingClaim, Identity};

/// Never `INSERT OR IGNORE`: it treats any constraint violation as a duplicate. Also returns how far claims were
/// pruned.
pub(super) const CLAIM: &str = r#"
INSERT INTO "idem_processed_messages" (handler_id, key, fingerprint, processed_at)
SELECT ?1, ?2, ?3, CASE WHEN ?4 THEN {now} END
WHERE NOT EXISTS (SELECT 1 FROM "idem_processed_messages" WHERE handler_id = ?1 AND key = ?2)
ON CONFLICT DO NOTHING
RETURNING (SELECT pruned_through FROM "idem_handlers" WHERE id = ?1)"#;

/// BEGIN, the claim and the guard's savepoint, whether or not the claim is new.
pub(super) fn begin_with_claim() -> String {
    format!("BEGIN IMMEDIATE; {CLAIM}; SAVEPOINT idem_guard")
}

pub(super) const EXISTING_CLAIM: &str = r#"
SELECT fingerprint, {now} - processed_at AS age FROM "idem_processed_messages" WHERE handler_id = ?1 AND key = ?2"#;

/// SQLite does not record which transaction has changed a row, and needs no such check: the commit hook refuses each
/// COMMIT that a handler awaits, so a claim is reopened only if the handler has not awaited one, or has removed the
/// hook. The answer can then be lost only if the disk fails at this very COMMIT, since the database is in this process.
pub(super) const REOPEN: &str = r#"
UPDATE "idem_processed_messages" SET processed_at = NULL
WHERE handler_id = ?1 AND key = ?2 AND processed_at IS NOT NULL"#;

pub(super) async fn insert(
    connection: &mut SqliteConnection,
    identity: &Identity,
    state: ClaimState,
) -> sqlx::Result<Claimed> {
    let inserted = bound(sql::query(CLAIM), identity, state).fetch_optional(&mut *connection).await?;
    claimed(connection, identity, inserted).await
}

/// Reads a claim. In a transaction, which is the single writer, no other connection can delete it before the end.
pub(super) async fn read(
    connection: &mut SqliteConnection,
    identity: &Identity,
) -> sqlx::Result<Option<ExistingClaim>> {
    let query = sqlx::query_as::<_, (Vec<u8>, Option<i64>)>(sql::filled(EXISTING_CLAIM));
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
    connection: &mut SqliteConnection,
    identity: &Identity,
    inserted: Option<SqliteRow>,
) -> sqlx::Result<Claimed> {
    match inserted {
        Some(row) => Ok(Claimed::New { pruned_through: row.try_get::<Option<i64>, _>(0)?.map(time) }),
        None => Ok(Claimed::Found(read(connection, identity).await?)),
    }
}
