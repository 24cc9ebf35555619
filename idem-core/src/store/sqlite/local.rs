//! The messages that a transaction hands to other handlers.

use sqlx::sqlite::SqliteConnection;

use super::handle::Sqlite;
use super::inbox_sql;
use crate::store::{LOCAL_CONFLICT, LocalMessage, Unscheduled, envelope};
use crate::{Fingerprint, Reason};

const CLAIM: &str = r#"
INSERT INTO "idem_processed_messages" (handler_id, key, fingerprint) VALUES (?1, ?2, ?3)
ON CONFLICT (handler_id, key) DO NOTHING"#;

const CLAIMED: &str = r#"SELECT fingerprint FROM "idem_processed_messages" WHERE handler_id = ?1 AND key = ?2"#;

/// What becomes of a message.
enum Stored {
    Scheduled,
    Conflict,
    /// It was claimed before.
    Duplicate,
}

/// Claims the messages, undated, and stores those whose claim is new. Returns how many of them do not run. The transaction is the only writer, so no claim
/// is made or removed meanwhile.
pub(super) async fn insert(
    store: &Sqlite,
    connection: &mut SqliteConnection,
    messages: &[LocalMessage],
) -> Result<Unscheduled, sqlx::Error> {
    let mut unscheduled = Unscheduled::default();
    for message in messages {
        let (reason, error) = match claim(store, connection, message).await? {
            Stored::Scheduled => (None, ""),
            Stored::Conflict => (Some(Reason::Conflict.as_str()), LOCAL_CONFLICT),
            Stored::Duplicate => {
                unscheduled.duplicates += 1;
                continue;
            }
        };
        unscheduled.conflicts += usize::from(reason.is_some());
        let LocalMessage { identity, delivery, provider_key } = message;
        let provider_key = if reason.is_none() { *provider_key } else { None };
        let query = sqlx::query(store.prefix.sql(inbox_sql::INSERT)).bind(identity.handler.0);
        let query = query.bind(identity.key.as_bytes()).bind(identity.fingerprint.as_bytes());
        let query = query.bind(delivery.payload().as_ref()).bind(envelope::seal(delivery));
        let query = query.bind(0).bind(error).bind(reason).bind(0);
        query.bind(provider_key).bind(None::<&[u8]>).execute(&mut *connection).await?;
    }
    Ok(unscheduled)
}

/// Claims a message, and compares it if there is a claim.
async fn claim(
    store: &Sqlite,
    connection: &mut SqliteConnection,
    LocalMessage { identity, .. }: &LocalMessage,
) -> Result<Stored, sqlx::Error> {
    let claim = sqlx::query(store.prefix.sql(CLAIM)).bind(identity.handler.0).bind(identity.key.as_bytes());
    if claim.bind(identity.fingerprint.as_bytes()).execute(&mut *connection).await?.rows_affected() == 1 {
        return Ok(Stored::Scheduled);
    }
    let claimed = sqlx::query_scalar::<_, Vec<u8>>(store.prefix.sql(CLAIMED)).bind(identity.handler.0);
    let claimed = claimed.bind(identity.key.as_bytes()).fetch_one(connection).await?;
    let is_copy = identity.is_copy(Fingerprint::stored(&claimed));
    Ok(if is_copy { Stored::Duplicate } else { Stored::Conflict })
}
