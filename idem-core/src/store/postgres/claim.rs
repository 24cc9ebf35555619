//! Claims: made, read, reopened, and dated by the start of an inbox row.

use std::time::Duration;

use sqlx::Row as _;

use crate::store::{Claimed, Fault, HandlerId, Identity, Promise, Row, Standing};
use crate::{Fingerprint, Key};

use super::{Postgres, Txn};

/// `WHERE NOT EXISTS` answers at once where a committed claim is being updated by an inbox run, for which a plain ON
/// CONFLICT would wait. An uncommitted insert is still waited for. The lock timeout is given back to the session's own
/// for the handler, in the same round trip; the transaction's number is for the guard.
pub(super) const CLAIM: &str = "
    INSERT INTO {schema}.processed_messages AS claim (handler_id, key, fingerprint, processed_at)
    SELECT $1, $2, $3, CASE WHEN $4 THEN now() END
    WHERE NOT EXISTS (SELECT FROM {schema}.processed_messages WHERE handler_id = $1 AND key = $2)
    ON CONFLICT (handler_id, key) DO NOTHING
    RETURNING pg_current_xact_id()::text,
              set_config('lock_timeout', coalesce($5, current_setting('lock_timeout')), true)";

pub(super) const STANDING: &str = "
    SELECT fingerprint, (extract(epoch FROM clock_timestamp() - processed_at) * 1000000)::bigint
    FROM {schema}.processed_messages WHERE handler_id = $1 AND key = $2 FOR KEY SHARE";

pub(super) const REOPEN: &str = "
    UPDATE {schema}.processed_messages SET processed_at = NULL WHERE handler_id = $1 AND key = $2";

/// Deleting the row locks it, so that other takers skip it while the handler runs.
pub(super) const START: &str = "
    WITH gone AS (
        DELETE FROM {schema}.inbox_messages WHERE id = $1 AND token = $2 RETURNING handler_id, key
    ), dated AS (
        UPDATE {schema}.processed_messages AS claim SET processed_at = now() FROM gone
        WHERE claim.handler_id = gone.handler_id AND claim.key = gone.key
    )
    SELECT pg_current_xact_id()::text, set_config('lock_timeout', $3, true) FROM gone";

impl Postgres {
    pub(super) async fn make_claim(
        &self,
        txn: &mut Txn,
        identity: &Identity,
        promise: Promise,
    ) -> Result<Claimed, Fault> {
        let lock_timeout = match promise {
            Promise::Processed => Some(txn.lock_timeout()),
            // No handler follows, only statements of idem's own.
            Promise::Waiting => None,
        };
        let query = self.sql().claim.query();
        let query = query.bind(identity.handler.0).bind(identity.key.as_bytes()).bind(identity.fingerprint.as_bytes());
        let rows = txn.ask(query.bind(promise == Promise::Processed).bind(lock_timeout)).await?;
        match rows.first() {
            Some(row) => {
                txn.guard(row.try_get(0)?);
                Ok(Claimed::New)
            }
            None => Ok(Claimed::Found),
        }
    }

    pub(super) async fn read_claim(
        &self,
        txn: &mut Txn,
        handler: HandlerId,
        key: &Key,
    ) -> Result<Option<Standing>, Fault> {
        let rows = txn.ask(self.sql().standing.query().bind(handler.0).bind(key.as_bytes())).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let micros: Option<i64> = row.try_get(1)?;
        Ok(Some(Standing {
            fingerprint: Fingerprint::stored(row.try_get(0)?),
            age: micros.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0))),
        }))
    }

    pub(super) async fn reopen_claim(&self, txn: &mut Txn, handler: HandlerId, key: &Key) -> Result<(), Fault> {
        txn.ask(self.sql().reopen.query().bind(handler.0).bind(key.as_bytes())).await?;
        Ok(())
    }

    pub(super) async fn start_row(&self, txn: &mut Txn, row: &Row) -> Result<bool, Fault> {
        let lock_timeout = txn.lock_timeout();
        let rows = txn.ask(self.sql().start.query().bind(row.id).bind(row.token).bind(lock_timeout)).await?;
        if let Some(row) = rows.first() {
            txn.guard(row.try_get(0)?);
        }
        Ok(!rows.is_empty())
    }
}
