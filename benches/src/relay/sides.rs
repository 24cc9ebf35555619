//! The outbox, filled, and one run of one side.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use idem::outbox::Outgoing;
use idem::{Postgres, Relay};
use idem_brokers::Broker as Client;
use idem_test::TappedSink;
use sqlx::{Connection, PgConnection, PgPool};
use tokio::time::timeout;
use uuid::Uuid;

use super::pace::Confirms;
use crate::hand_written;
use crate::message::{self, SCHEMA};
use crate::sides::LANES;
use crate::tables::run;

/// How many messages are unconfirmed at the same time, on all sides: the default of a relay.
pub(super) const CONCURRENCY: usize = 500;
/// The number of keys of the side with keys: enough that the order of each does not limit the throughput.
const KEYS: usize = 10_000;

/// One message of a key is under way at a time: the side of one key gets a part of the messages, or it would run for
/// minutes.
pub(super) const PART: usize = 20;

/// How many other messages a relay deletes for each that is measured behind them. With 200,000 they are 600,000: what ten
/// minutes bring at 1,000 a second.
pub(super) const OTHERS: usize = 3;

/// Gives the transaction an id.
const NUMBERED: &str = "SELECT pg_current_xact_id()";

const PATIENCE: Duration = Duration::from_secs(600);

/// The measured sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The relay, with all settings at their defaults.
    Relay,
    /// The same, and each message has a key.
    Keyed,
    /// The same, and all messages have one key.
    Hot,
    /// The same as the first, behind many other messages.
    Behind,
    /// The same, while other transactions are open that began before all of them were staged. Their age costs nothing, but the
    /// database can remove no deleted row from the table and its indexes.
    Open,
    /// A loop that publishes from memory.
    HandWritten,
}

impl Side {
    pub(super) const ALL: [Self; 6] =
        [Self::Relay, Self::Keyed, Self::Hot, Self::Behind, Self::Open, Self::HandWritten];
}

pub(super) struct Sides {
    url: String,
    /// The connection for checks and cleanup.
    pub(super) conn: PgConnection,
    pub(super) store: Postgres,
    /// The pool of the transactions that stage at a fixed rate.
    pub(super) pool: PgPool,
}

impl Sides {
    pub(super) async fn new(url: &str) -> Result<Self> {
        let mut conn = PgConnection::connect(url).await?;
        message::tables(&mut conn).await?;
        let store = Postgres::options(url).schema(SCHEMA).connect().await?;
        let pool = hand_written::pool(url, LANES as u32).await?;
        Ok(Self { url: url.to_owned(), conn, store, pool })
    }

    /// Returns the messages per second of one side. Beside open transactions, the messages are behind `deleted` others.
    pub(super) async fn run<B: Client>(
        &mut self,
        address: &str,
        side: Side,
        (deleted, messages): (usize, usize),
    ) -> Result<f64> {
        let client = self.prepare::<B>(address).await?;
        let rate = match side {
            Side::Relay => self.publish::<B>(address, (0, messages), 0).await?,
            Side::Keyed => self.publish::<B>(address, (0, messages), KEYS).await?,
            Side::Hot => self.publish::<B>(address, (0, messages.div_ceil(PART)), 1).await?,
            Side::Behind => self.publish::<B>(address, (OTHERS * messages, messages), 0).await?,
            Side::Open => self.publish_beside_open::<B>(address, (deleted, messages)).await?,
            Side::HandWritten => hand_written(&client, messages).await?,
        };
        client.delete().await?;
        Ok(rate)
    }

    /// Stages messages behind this many others, spread over this many keys. Then a relay publishes them; the others it
    /// only deletes, or the broker would have more to keep than on the other sides.
    async fn publish<B: Client>(
        &mut self,
        address: &str,
        (others, messages): (usize, usize),
        keys: usize,
    ) -> Result<f64> {
        let confirms = Confirms::behind(others, messages);
        fill(&mut self.conn, &self.store, others + messages, keys).await?;
        self.relay::<B>(address, &confirms, confirms.all()).await?;
        self.verify().await?;
        Ok(confirms.rate())
    }

    /// Does so while other transactions are open: from before the first message is staged until the last one is deleted. One
    /// has written, one reads, and one is prepared.
    async fn publish_beside_open<B: Client>(&mut self, address: &str, messages: (usize, usize)) -> Result<f64> {
        let (mut writer, mut reader) =
            (PgConnection::connect(&self.url).await?, PgConnection::connect(&self.url).await?);
        let mut writes = writer.begin().await?;
        // Only a transaction with an id keeps deleted rows while it has no statement to run.
        sqlx::query(NUMBERED).execute(&mut *writes).await?;
        let mut reads = reader.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
        sqlx::query("SELECT 1").execute(&mut *reads).await?;
        run(&mut self.conn, format!("BEGIN; {NUMBERED}; PREPARE TRANSACTION 'idem-bench'")).await?;
        let rate = self.publish::<B>(address, messages, 0).await;
        run(&mut self.conn, "ROLLBACK PREPARED 'idem-bench'".to_owned()).await?;
        // An error says that the server has ended it before.
        reads.rollback().await?;
        writes.rollback().await?;
        rate
    }

    /// Empties the outbox, and creates the queue, stream or topic.
    pub(super) async fn prepare<B: Client>(&mut self, address: &str) -> Result<B> {
        run(&mut self.conn, format!("TRUNCATE {SCHEMA}.outbox_messages")).await?;
        let client = B::connect(address, NAME).await?;
        client.create().await?;
        Ok(client)
    }

    /// Runs a relay until this future completes; then it drains.
    pub(super) async fn relay<B: Client>(
        &self,
        address: &str,
        confirms: &Confirms,
        end: impl Future<Output = ()> + Send,
    ) -> Result<()> {
        let sink = TappedSink::new(B::sink(address).await?, confirms.clone());
        let relay = Relay::new(OUTBOX, self.store.clone(), sink).concurrency(CONCURRENCY).run_until(end);
        Ok(timeout(PATIENCE, relay).await.with_context(|| format!("not published within {PATIENCE:?}"))??)
    }

    /// Checks that each message was deleted.
    pub(super) async fn verify(&mut self) -> Result<()> {
        let text = format!(
            "SELECT (SELECT count(*) FROM {SCHEMA}.outbox_messages) + (SELECT count(*) FROM {SCHEMA}.outbox_dead)"
        );
        let left: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(text)).fetch_one(&mut self.conn).await?;
        ensure!(left == 0, "{left} messages are still in the outbox");
        Ok(())
    }
}

/// Publishes from memory. The next message is published as soon as one is confirmed.
async fn hand_written<B: Client>(client: &B, messages: usize) -> Result<f64> {
    let confirms = &Confirms::new(messages);
    stream::iter(0..messages)
        .map(|number| async move {
            client.publish(&[payload(number)]).await?;
            confirms.add(Uuid::nil());
            anyhow::Ok(())
        })
        .buffer_unordered(CONCURRENCY)
        .try_collect::<()>()
        .await?;
    Ok(confirms.rate())
}

/// The name of the outbox.
pub(super) const OUTBOX: &str = "bench";
/// The name of the queue, stream or topic.
pub(super) const NAME: &str = "idem-bench-relay";

/// The bytes of a payload.
pub(super) const SIZE: usize = 200;

/// The number of messages of a transaction.
const CHUNK: usize = 1000;

/// Returns the payload of a message.
pub(super) fn payload(number: usize) -> Vec<u8> {
    let mut payload = number.to_string().into_bytes();
    payload.resize(SIZE, b'.');
    payload
}

/// Stages this many messages. With `keys`, they are spread over this many keys.
pub(super) async fn fill(conn: &mut PgConnection, store: &Postgres, messages: usize, keys: usize) -> Result<()> {
    let outbox = store.outbox(OUTBOX);
    for first in (0..messages).step_by(CHUNK) {
        let staged = (first..messages.min(first + CHUNK)).map(|number| {
            let message = Outgoing::new(NAME, payload(number));
            if keys == 0 { message } else { message.key((number % keys) as i64) }
        });
        let mut tx = conn.begin().await?;
        outbox.stage(&mut tx, staged).await?;
        tx.commit().await?;
    }
    Ok(())
}
