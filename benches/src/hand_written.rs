//! The sides without idem: a consumer that trusts its broker, and the baseline, a careful engineer's implementation of the same
//! guarantees with sqlx.
//!
//! The baseline has these advantages: a connection for each task, prepared statements, no test before a connection is acquired,
//! a plain INSERT as its claim, and a queue that costs nothing to poll. It also omits what idem adds (single flight in
//! the process, a timeout for each response, redelivered messages through an inbox, spans and metrics). It has
//! everything that the guarantees require: timeouts for locks, statements and idle transactions, durability, the
//! fingerprint, the handler timeout, the guard, and the ack after the commit.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgConnection, PgPool};

use crate::message::{AUTOCOMMIT, Claims, EFFECT, HAND_WRITTEN, OrderPaid, TO};
use crate::plan::Work;
use crate::queue::Queue;

const BEGIN: &str = "BEGIN; SET LOCAL lock_timeout = 1000; SET LOCAL statement_timeout = 30000; \
    SET LOCAL idle_in_transaction_session_timeout = 40000; SET LOCAL synchronous_commit = on";

const GUARD: &str = "SELECT pg_current_xact_id_if_assigned()::text";

/// Stages a message, in the same table as idem's.
const STAGE: &str =
    "INSERT INTO idem_bench.hand_written_outbox (outbox_id, message_id, destination, key, envelope, payload)
    VALUES (1, $1, $2, $3, $4, $5)";

/// What idem stores of a message beside its payload: it has no headers.
const ENVELOPE: &[u8] = br#"{"content_type":"application/json"}"#;

const DEADLINE: Duration = Duration::from_secs(30);

/// Creates a pool with all its connections open.
pub(crate) async fn pool(url: &str, lanes: u32) -> Result<PgPool> {
    let pool = PgPoolOptions::new()
        .min_connections(lanes)
        .max_connections(lanes)
        .test_before_acquire(false)
        .idle_timeout(None)
        .max_lifetime(None);
    Ok(pool.connect(url).await?)
}

/// The loop, with its table and its work.
#[derive(Clone)]
pub(crate) struct HandWritten {
    pool: PgPool,
    work: Work,
    handler: i32,
    claim: Arc<str>,
    existing: Arc<str>,
}

impl HandWritten {
    /// Creates the loop. The handler does this work: inserts a row, or also stages a message.
    pub(crate) fn new(pool: &PgPool, claims: &Claims, work: Work) -> Self {
        let Claims { table, handler } = claims;
        let claim = format!(
            "INSERT INTO {table} (handler_id, key, fingerprint, processed_at)
             VALUES ($1, $2, $3, now()) ON CONFLICT DO NOTHING RETURNING pg_current_xact_id()::text"
        );
        // Whether an existing claim belongs to this message.
        let existing = format!("SELECT fingerprint = $3 FROM {table} WHERE handler_id = $1 AND key = $2");
        Self { pool: pool.clone(), work, handler: *handler, claim: claim.into(), existing: existing.into() }
    }

    /// Processes the messages with `lanes` tasks; returns the messages per second.
    pub(crate) async fn run(self, lanes: usize, messages: Vec<Bytes>) -> Result<f64> {
        let process = move |payload: Bytes| {
            let this = self.clone();
            async move { this.process(&payload).await }
        };
        Queue::new(messages).process(lanes, process).await
    }

    /// Processes one message, up to and including the commit.
    pub(crate) async fn process(&self, payload: &[u8]) -> Result<()> {
        let event: OrderPaid = serde_json::from_slice(payload)?;
        let fingerprint = Sha256::digest(payload);
        let (key, fingerprint) = (&event.event_id.as_bytes()[..], &fingerprint[..16]);
        let mut tx = self.pool.begin_with(BEGIN).await?;
        let claim =
            sqlx::query_scalar(AssertSqlSafe(self.claim.clone())).bind(self.handler).bind(key).bind(fingerprint);
        let claimed: Option<String> = claim.fetch_optional(&mut *tx).await?;
        let Some(claimed) = claimed else {
            tx.rollback().await?;
            let existing = sqlx::query_scalar(AssertSqlSafe(self.existing.clone()));
            let copy = existing.bind(self.handler).bind(key).bind(fingerprint).fetch_optional(&self.pool).await?;
            ensure!(copy == Some(true), "another message has the key");
            return Ok(());
        };
        tokio::time::timeout(DEADLINE, self.handle(event, &mut tx)).await??;
        let now: Option<String> = sqlx::query_scalar(GUARD).fetch_one(&mut *tx).await?;
        ensure!(now == Some(claimed), "the handler ended the transaction");
        tx.commit().await?;
        Ok(())
    }

    async fn handle(&self, event: OrderPaid, tx: &mut PgConnection) -> Result<()> {
        let query = sqlx::query(EFFECT).bind(HAND_WRITTEN).bind(event.order_id).bind(event.amount);
        query.execute(&mut *tx).await?;
        if self.work == Work::Staged {
            self.stage(&event, tx).await?;
        }
        Ok(())
    }

    async fn stage(&self, event: &OrderPaid, tx: &mut PgConnection) -> Result<()> {
        let (key, payload) = (event.order_id.to_string(), serde_json::to_vec(event)?);
        let query = sqlx::query(STAGE).bind(uuid::Uuid::new_v4()).bind(TO.as_bytes());
        query.bind(key.as_bytes()).bind(ENVELOPE).bind(payload).execute(tx).await?;
        Ok(())
    }
}

/// Processes the messages with `lanes` tasks; returns the messages per second.
pub(crate) async fn autocommit(pool: &PgPool, lanes: usize, messages: Vec<Bytes>) -> Result<f64> {
    let pool = pool.clone();
    let process = move |payload: Bytes| {
        let pool = pool.clone();
        async move {
            let event: OrderPaid = serde_json::from_slice(&payload)?;
            let query = sqlx::query(EFFECT).bind(AUTOCOMMIT).bind(event.order_id).bind(event.amount);
            query.execute(&pool).await?;
            Ok(())
        }
    };
    Queue::new(messages).process(lanes, process).await
}
