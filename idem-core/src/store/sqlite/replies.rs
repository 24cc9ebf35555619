//! The replies to requests.

use std::time::Duration;

use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::store::{Answer, HandlerId, Identity, REQUEST, Replies, StoredReply, Transactions as _};

use super::sql;
use super::{Sqlite, Txn};

/// A reply whose claim is gone, because somebody has deleted it, is replaced.
pub(super) const KEEP: &str = r#"
INSERT INTO "idem_replies" (handler_id, key, created_at, status, headers, body) VALUES (?1, ?2, {now}, ?3, ?4, ?5)
ON CONFLICT (handler_id, key) DO UPDATE
    SET created_at = excluded.created_at, status = excluded.status, headers = excluded.headers, body = excluded.body"#;

pub(super) const FIND: &str = r#"
SELECT status, headers, body FROM "idem_replies" WHERE handler_id = ?1 AND key = ?2"#;

impl Replies for Sqlite {
    type Connection = SqliteConnection;

    /// BEGIN waits for whatever writes, and the claim for nothing.
    const WAITS_FOR_CLAIM: bool = false;

    fn lend(txn: &mut Txn) -> &mut SqliteConnection {
        txn.lend()
    }

    async fn register_requests(&self, name: &str, retention: Duration) -> Answer<HandlerId> {
        let intern = async |txn: &mut Txn| self.intern_for(txn.connection(), name, REQUEST, retention).await;
        self.in_transaction(intern).await.map(HandlerId)
    }

    fn keep_reply(&self, txn: &mut Txn, request: &Identity, reply: StoredReply) {
        txn.reply = Some(Box::new((request.clone(), reply)));
    }

    async fn find_reply(&self, mut txn: Txn, request: &Identity) -> Answer<Option<StoredReply>> {
        let find = sql::query(FIND).bind(request.handler.0).bind(request.key.as_bytes());
        let found = find.fetch_optional(txn.connection()).await.map_err(|error| self.file.fault(error))?;
        self.rollback(txn).await?;
        found.as_ref().map(reply).transpose().map_err(|error| self.file.fault(error))
    }
}

/// Inserts a reply.
pub(super) async fn insert(
    connection: &mut SqliteConnection,
    (request, reply): &(Identity, StoredReply),
) -> sqlx::Result<()> {
    let query = sql::query(KEEP).bind(request.handler.0).bind(request.key.as_bytes()).bind(reply.status);
    query.bind(&reply.headers[..]).bind(&reply.body[..]).execute(connection).await.map(drop)
}

/// Decodes a reply.
fn reply(row: &SqliteRow) -> sqlx::Result<StoredReply> {
    let [headers, body] = [row.try_get::<Vec<u8>, _>(1)?, row.try_get::<Vec<u8>, _>(2)?];
    Ok(StoredReply { status: row.try_get(0)?, headers: headers.into(), body: body.into() })
}
