//! The messages, and the tables that all sides write to.

use anyhow::Result;
use bytes::Bytes;
use idem::prelude::*;
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

/// About 97 bytes of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OrderPaid {
    pub(crate) event_id: Uuid,
    pub(crate) order_id: i64,
    pub(crate) amount: i64,
}

/// The only statement of the handler, on each side. The table has no unique constraint: only the claim prevents
/// duplicates.
pub(crate) const EFFECT: &str = "INSERT INTO idem_bench.effects (side, order_id, amount) VALUES ($1, $2, $3)";

/// The same for many rows.
pub(crate) const EFFECTS: &str = "INSERT INTO idem_bench.effects (side, order_id, amount)
    SELECT $1, * FROM unnest($2::bigint[], $3::bigint[])";

/// The `side` column of each side's effects.
pub(crate) const IDEM: i32 = 1;
pub(crate) const HAND_WRITTEN: i32 = 2;
pub(crate) const AUTOCOMMIT: i32 = 5;

#[idempotent(key = "event_id", name = "order_paid")]
pub(crate) async fn order_paid(event: OrderPaid, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query(EFFECT).bind(IDEM).bind(event.order_id).bind(event.amount).execute(tx).await?;
    Ok(())
}

/// It makes the same row as the others, so that the sides do the same work; an upsert would be natural.
#[idempotent(key = "event_id", name = "order_natural", natural)]
pub(crate) async fn order_natural(event: OrderPaid, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query(EFFECT).bind(IDEM).bind(event.order_id).bind(event.amount).execute(tx).await?;
    Ok(())
}

/// Where the staged messages go to. No relay runs.
pub(crate) const TO: &str = "invoice.requested";

#[idempotent(key = "event_id", name = "order_staged")]
pub(crate) async fn order_staged(event: OrderPaid, tx: &mut PgConnection, outbox: Outbox) -> Result<(), BoxError> {
    sqlx::query(EFFECT).bind(IDEM).bind(event.order_id).bind(event.amount).execute(tx).await?;
    outbox.publish(TO, &event)?.key(event.order_id);
    Ok(())
}

/// Returns new messages, none of which was seen before, with random keys.
pub(crate) fn fresh(count: usize) -> Result<Vec<Bytes>> {
    with_keys(count, Uuid::new_v4)
}

/// Returns new messages whose keys grow.
pub(crate) fn growing(count: usize) -> Result<Vec<Bytes>> {
    with_keys(count, Uuid::now_v7)
}

fn with_keys(count: usize, key: fn() -> Uuid) -> Result<Vec<Bytes>> {
    let message = |n: usize| OrderPaid { event_id: key(), order_id: n as i64, amount: 4990 };
    (0..count).map(|n| Ok(serde_json::to_vec(&message(n))?.into())).collect()
}

/// Returns `count` messages that repeat those in `seen`.
pub(crate) fn repeated(seen: &[Bytes], count: usize) -> Vec<Bytes> {
    seen.iter().cycle().take(count).cloned().collect()
}

/// The claims of a side without idem: a table like idem's, and the number that represents its handler.
#[derive(Debug, Clone)]
pub(crate) struct Claims {
    pub(crate) table: String,
    pub(crate) handler: i32,
}

/// The schema of idem's tables.
pub(crate) const SCHEMA: &str = "idem_bench_worker";

/// Recreates the tables. The claims and the outbox of the baseline are in tables like
/// idem's, because the same guarantees need the same data: the fingerprint to detect a conflict, the date to prune. The
/// claims have an index on the date, by which a hand-written loop finds what to prune. idem has none: it walks through the table.
pub(crate) async fn tables(conn: &mut PgConnection) -> Result<()> {
    let claims = |name: &str| {
        format!(
            "CREATE TABLE idem_bench.{name} (processed_at timestamptz, handler_id int NOT NULL,
                 key bytea NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 255),
                 fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) <= 255), PRIMARY KEY (handler_id, key));
             CREATE INDEX ON idem_bench.{name} (processed_at) WHERE processed_at IS NOT NULL;"
        )
    };
    let text = format!(
        "DROP SCHEMA IF EXISTS idem_bench, {SCHEMA} CASCADE; CREATE SCHEMA idem_bench;
         CREATE TABLE idem_bench.effects (side int NOT NULL, order_id bigint NOT NULL, amount bigint NOT NULL);
         CREATE TABLE idem_bench.hand_written_outbox (outbox_id int NOT NULL,
             id bigint GENERATED ALWAYS AS IDENTITY, message_id uuid NOT NULL,
             created_at timestamptz NOT NULL DEFAULT now(), due_at timestamptz, attempts int NOT NULL DEFAULT 0,
             destination bytea NOT NULL, key bytea NOT NULL DEFAULT '' CHECK (octet_length(key) <= 255),
             envelope bytea NOT NULL, payload bytea NOT NULL, error bytea NOT NULL DEFAULT '',
             PRIMARY KEY (outbox_id, id));
         {} {}",
        claims("hand_written"),
        claims("again"),
    );
    sqlx::raw_sql(AssertSqlSafe(text)).execute(conn).await?;
    Ok(())
}
