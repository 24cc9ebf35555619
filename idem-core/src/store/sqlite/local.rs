//! The messages that a transaction hands to other handlers.

use std::time::Duration;

use sqlx::sqlite::SqliteConnection;

use super::handle::Sqlite;
use super::{claims, inbox_rows};
use crate::Reason;
use crate::store::{ClaimState, Claimed, LOCAL_CONFLICT, LocalMessage, NewRow, Unscheduled};

/// Claims the messages, undated, and stores those whose claim is new. Returns how many of them do not run. The transaction is
/// the only writer, so no claim is made or removed meanwhile.
pub(super) async fn insert(
    store: &Sqlite,
    connection: &mut SqliteConnection,
    messages: &[LocalMessage],
) -> Result<Unscheduled, sqlx::Error> {
    let mut unscheduled = Unscheduled::default();
    for LocalMessage { identity, delivery, provider_key } in messages {
        let row = match claims::insert(store, connection, identity, ClaimState::Waiting).await? {
            Claimed::Found(Some(existing)) if identity.is_copy(existing.fingerprint) => {
                unscheduled.duplicates += 1;
                continue;
            }
            Claimed::Found(_) => {
                unscheduled.conflicts += 1;
                NewRow::new(identity, delivery, Err(Reason::Conflict)).with_attempts(0, LOCAL_CONFLICT)
            }
            Claimed::New { .. } => {
                NewRow { provider_key: *provider_key, ..NewRow::new(identity, delivery, Ok(Duration::ZERO)) }
            }
        };
        inbox_rows::insert(store, connection, &row).await?;
    }
    Ok(unscheduled)
}
