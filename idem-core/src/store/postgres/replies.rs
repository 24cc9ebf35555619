//! The replies to requests.

use std::time::Duration;

use bytes::Bytes;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use crate::store::{Answer, HandlerId, Identity, REQUEST, Replies, StoreError, StoredReply};

use super::answer::About;
use super::quote;
use super::rows::secs;
use super::{Postgres, Txn};

/// The INSERT of a reply, in front of COMMIT. A reply whose claim is gone, because somebody has deleted it, is replaced.
pub(super) const KEEP: &str = "
    INSERT INTO {schema}.replies (handler_id, key, status, headers, body) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (handler_id, key) DO UPDATE
        SET created_at = excluded.created_at, status = excluded.status, headers = excluded.headers, body = excluded.body";

/// Prepared in each connection, as the INSERT of a staged message is.
pub(super) fn prepare() -> String {
    format!("PREPARE idem_reply AS {KEEP}")
}

/// Reads a reply, as text: the answer comes in the simple protocol, where a bytea looks as `bytea_output` says.
const FIND: &str = "
    SELECT status, pg_catalog.encode(headers, 'hex'), pg_catalog.encode(body, 'hex')
    FROM {schema}.replies WHERE handler_id = $1 AND key = $2";

/// Returns the values of the INSERT as literals. Nothing of a reply gets into them except hexadecimal digits.
pub(super) fn values((request, reply): &(Identity, StoredReply)) -> [String; 5] {
    let [key, headers, body] = [request.key.as_bytes(), &reply.headers, &reply.body].map(quote::bytes);
    [request.handler.0.to_string(), key, reply.status.to_string(), headers, body]
}

impl Replies for Postgres {
    type Connection = PgConnection;

    /// BEGIN waits for nothing, and the claim for the other transaction that has inserted it.
    const WAITS_FOR_CLAIM: bool = true;

    fn lend(txn: &mut Txn) -> &mut PgConnection {
        txn.connection()
    }

    async fn register_requests(&self, name: &str, retention: Duration) -> Answer<HandlerId> {
        let registered = self.register_for(name, &[REQUEST], secs(retention)).await?;
        registered.first().copied().ok_or_else(|| StoreError::Unavailable("no handler was registered".into()))
    }

    fn keep_reply(&self, txn: &mut Txn, request: &Identity, reply: StoredReply) {
        txn.writes.reply = Some(Box::new((request.clone(), reply)));
    }

    /// Reads and rolls back in one string, and so in one round trip.
    async fn find_reply(&self, mut txn: Txn, request: &Identity) -> Answer<Option<StoredReply>> {
        let find = self.text_with(FIND, &[request.handler.0.to_string(), quote::bytes(request.key.as_bytes())]);
        let text = format!("{find}; ROLLBACK{}", txn.cleaning());
        let rows = txn.connection.text(text).await.map_err(|failure| failure.fault(About::Nothing))?;
        let reply = rows.first().filter(|row| row.len() == 3).map(reply).transpose()?;
        txn.put_back(&rows);
        Ok(reply)
    }
}

/// Decodes a reply.
fn reply(row: &PgRow) -> Answer<StoredReply> {
    let part = |column: usize| {
        let digits: &str = row.try_get(column)?;
        let bytes = hex::decode(digits).map_err(|error| StoreError::Unavailable(error.into()))?;
        Ok::<Bytes, StoreError>(bytes.into())
    };
    let status: i32 = row.try_get(0)?;
    let status = u16::try_from(status).map_err(|error| StoreError::Unavailable(error.into()))?;
    Ok(StoredReply { status, headers: part(1)?, body: part(2)? })
}
