//! The messages, and what became of them.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use idem::store::{ClaimState, Claims, CommitResult, Filter, Identity, InboxRows, NewRow, Page, Transactions};
use idem::{Delivery, Fingerprint, Inbox, Key, Postgres, Reason, external::Resolution};
use sqlx::types::Uuid;
use sqlx::{AssertSqlSafe, Executor, PgPool};

use super::payer::{CONSUMER, How, Order};
use crate::tables::SCHEMA;

/// What became of the messages.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) paid: i64,
    pub(super) paid_twice: i64,
    /// The messages that are unresolved.
    pub(super) unresolved: BTreeSet<u64>,
    pub(super) dead: i64,
}

/// The tables of a run.
pub(super) struct Rows {
    store: Postgres,
    pool: PgPool,
}

impl Rows {
    /// Makes empty tables, and stores the messages in the inbox.
    pub(super) async fn new(url: &str, how: How, messages: u64) -> Result<Self> {
        let pool = PgPool::connect(url).await?;
        let tables = format!(
            "DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; DROP SCHEMA IF EXISTS demo CASCADE; CREATE SCHEMA demo; \
             CREATE TABLE demo.payments (id bigint NOT NULL, charge text NOT NULL)"
        );
        pool.execute(sqlx::raw_sql(AssertSqlSafe(tables))).await?;
        let store = Postgres::options(url).schema(SCHEMA).connections(4).connect().await?;
        let rows = Self { store, pool };
        let name = if how == How::Called { "called" } else { "naive" };
        let handler = rows.store.register(CONSUMER, &[name]).await?.pop().context("it is registered")?;
        for first in (0..messages).step_by(500) {
            let orders = (first..messages.min(first + 500)).map(|id| -> Result<_> {
                let payload = serde_json::to_vec(&Order { id })?;
                let (key, fingerprint) = (Key::of(&id)?, Fingerprint::of(&payload));
                Ok((Identity { handler, key, fingerprint }, Delivery::new("orders", payload)))
            });
            let mut orders = orders.collect::<Result<Vec<_>>>()?;
            orders.sort_by_key(|(identity, _)| identity.key.as_bytes().to_vec());
            let mut txn = rows.store.begin(Duration::from_secs(60)).await?;
            let identities: Vec<&Identity> = orders.iter().map(|(identity, _)| identity).collect();
            rows.store.claim_many(&mut txn, &identities, ClaimState::Waiting).await?;
            let new = orders.iter().map(|(identity, delivery)| {
                let row = NewRow::new(identity, delivery, Ok(Duration::ZERO));
                if how == How::Called { row.with_call(Uuid::new_v4()) } else { row }
            });
            rows.store.insert_many(&mut txn, &new.collect::<Vec<_>>()).await?;
            anyhow::ensure!(matches!(rows.store.commit(txn).await, CommitResult::Done), "the messages were not stored");
        }
        Ok(rows)
    }

    /// How many messages are still scheduled.
    pub(super) async fn scheduled(&self) -> Result<i64> {
        self.number(&format!("SELECT count(*) FROM {SCHEMA}.inbox_messages WHERE state <> 'dead'")).await
    }

    /// Lets the keys of these messages get too old, once their calls are in doubt.
    pub(super) async fn hold(&self, held: &BTreeSet<u64>) -> Result<()> {
        let key = |id: &u64| -> Result<Vec<u8>> { Ok(Key::of(id)?.as_bytes().to_vec()) };
        let held = held.iter().map(key).collect::<Result<Vec<_>>>()?;
        let older = format!(
            "UPDATE {SCHEMA}.inbox_messages SET called_at = called_at - interval '1 day'
             WHERE key = ANY($1) AND attempts > 0 AND locked_by IS NULL AND called_at > now() - interval '12 hours'"
        );
        sqlx::query(AssertSqlSafe(older)).bind(held).execute(&self.pool).await?;
        Ok(())
    }

    /// Does what an operator does about an error that the provider has stored: calls again under another key. Returns how many
    /// messages that were.
    pub(super) async fn call_again(&self) -> Result<u64> {
        let inbox = Inbox::new(&self.store, CONSUMER);
        let mut again = 0;
        for row in inbox.list(&Filter::new().reason(Reason::Exhausted), Page::new(10_000)).await? {
            // The naive handler makes no call that idem knows of.
            let Some(key) = row.provider_key else { continue };
            again += u64::from(inbox.resolve(row.id, key, Resolution::CallAgain).await?);
        }
        Ok(again)
    }

    /// Returns what became of the messages.
    pub(super) async fn outcome(&self) -> Result<Outcome> {
        let dead = |column: &str, reason: &str| {
            format!("SELECT {column} FROM {SCHEMA}.inbox_messages WHERE state = 'dead' AND reason {reason}")
        };
        // The key of a message is its number as text.
        let unresolved = dead("convert_from(key, 'UTF8')::bigint", "= 'unresolved'");
        let unresolved: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(unresolved)).fetch_all(&self.pool).await?;
        Ok(Outcome {
            paid: self.number("SELECT count(DISTINCT id) FROM demo.payments").await?,
            paid_twice: self.number("SELECT count(*) - count(DISTINCT id) FROM demo.payments").await?,
            unresolved: unresolved.into_iter().map(u64::try_from).collect::<Result<_, _>>()?,
            dead: self.number(&dead("count(*)", "<> 'unresolved'")).await?,
        })
    }

    async fn number(&self, sql: &str) -> Result<i64> {
        Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.pool).await?)
    }
}
