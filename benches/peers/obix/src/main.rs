//! obix: an inbox event is stored under its idempotency key, with a job, in one transaction; the job runs the handler.
//!
//! It cannot do the same work: its handler does not run in the claim's transaction, so a crash after the handler's row
//! repeats the row. Measured all the same, from the first storing to the last row of a handler.

use anyhow::{Context, Result};
use obix::Inbox;
use obix::inbox::{InboxAttempt, InboxConfig, InboxEvent, InboxHandler, InboxResult};
use peer_load::{Clock, EFFECT, EFFECTS, Load, OrderPaid};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::sync::mpsc;

/// As the crate asks its users to make it.
const TABLES: &str = "CREATE TYPE InboxEventStatus AS ENUM ('pending', 'processing', 'completed', 'failed');
    CREATE TABLE inbox_events (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), idempotency_key varchar UNIQUE,
        payload jsonb NOT NULL, status InboxEventStatus NOT NULL DEFAULT 'pending', error varchar,
        recorded_at timestamptz NOT NULL DEFAULT now(), processed_at timestamptz);
    CREATE INDEX ON inbox_events (status) WHERE status IN ('pending', 'processing', 'failed')";

#[derive(obix::MailboxTables)]
struct Tables;

struct Insert {
    pool: PgPool,
    clock: Clock,
    last: mpsc::Sender<()>,
}

impl InboxHandler for Insert {
    async fn handle(
        &self,
        event: &InboxEvent,
        _: InboxAttempt,
    ) -> Result<InboxResult, Box<dyn std::error::Error + Send + Sync>> {
        let event: OrderPaid = event.payload()?;
        sqlx::query(EFFECT).bind(event.order_id).bind(event.amount).execute(&self.pool).await?;
        if self.clock.done() {
            let _ = self.last.send(()).await;
        }
        Ok(InboxResult::Complete)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let load = Load::from_args()?;
    let lanes = load.lanes as u32;
    let options: PgConnectOptions = load.url.parse()?;
    // As many again for its own poller and its handlers, and some to spare.
    let pool = PgPoolOptions::new().min_connections(lanes).max_connections(2 * lanes + 8).test_before_acquire(false);
    let pool = pool.connect_with(options.options([("search_path", "idem_bench_peer")])).await?;
    sqlx::raw_sql("CREATE SCHEMA IF NOT EXISTS idem_bench_peer").execute(&pool).await?;
    sqlx::raw_sql(TABLES).execute(&pool).await?;
    let config = job::JobSvcConfig::builder().pool(pool.clone()).exec_migrations(true).build();
    let mut jobs = job::Jobs::init(config.map_err(|error| anyhow::anyhow!("{error:?}"))?).await?;
    let clock = Clock::new(load.messages);
    let (last, mut ended) = mpsc::channel(1);
    let handler = Insert { pool: pool.clone(), clock: clock.clone(), last };
    let config = InboxConfig::new(job::JobType::new("orders"));
    let inbox = Inbox::<Tables>::new(&pool, &mut jobs, config, handler);
    jobs.start_poll().await?;
    load.run(move |payload| {
        let inbox = inbox.clone();
        async move {
            let event: OrderPaid = serde_json::from_slice(&payload)?;
            let stored = inbox.persist_and_queue_job(event.event_id.to_string(), &event).await;
            stored.map_err(|error| anyhow::anyhow!("{error:?}"))?;
            Ok(())
        }
    })
    .await?;
    ended.recv().await.context("the jobs ended")?;
    clock.print(sqlx::query_scalar(EFFECTS).fetch_one(&pool).await?)
}
