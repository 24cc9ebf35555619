//! The two sides, and one run of one of them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use idem::{Outcome, Postgres, Worker};
use idem_brokers::Broker as Client;
use idem_test::Tapped;
use serde::Serialize;
use sqlx::{Connection, PgConnection};
use tokio::time::timeout;

use super::consumer::{self, Consumer};
use super::load::{Load, NAME};
use super::timed::Timed;
use super::times::{Latency, Times};
use crate::by_hand::{self, ByHand, Shape};
use crate::case::Work;
use crate::message::{self, BY_HAND, Claims, IDEM, SCHEMA, order_paid};
use crate::options::Pace;
use crate::tables::run;

/// How many messages each side processes at once.
pub(crate) const CONCURRENCY: u16 = 16;

/// The number of messages before the measured ones. A worker on Kafka stores the first ones of each partition.
const WARM_UP: usize = 500;

/// How long a run may take beside the time in which its messages are published.
const PATIENCE: Duration = Duration::from_secs(90);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Idem,
    ByHand,
}

/// One run of one side.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Sample {
    /// In milliseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// The messages per second that were published.
    pub(crate) rate: f64,
}

pub(crate) struct Sides {
    /// The connection for checks and cleanup.
    pub(crate) conn: PgConnection,
    store: Postgres,
    by_hand: ByHand,
}

impl Sides {
    pub(crate) async fn new(url: &str) -> Result<Self> {
        let mut conn = PgConnection::connect(url).await?;
        message::tables(&mut conn).await?;
        let store = Postgres::options(url).schema(SCHEMA).connect().await?;
        let pool = by_hand::pool(&url.parse()?, Shape::Guarded, CONCURRENCY.into()).await?;
        let claims = Claims { table: "idem_bench.by_hand".to_owned(), handler: 1 };
        Ok(Self { conn, store, by_hand: ByHand::new(&pool, Shape::Guarded, &claims, Work::Fresh) })
    }

    /// Runs one side once, from an empty queue, and checks that the work was done.
    pub(crate) async fn run<B: Client, C: Consumer>(
        &mut self,
        address: &str,
        side: Side,
        Pace { rate, seconds, .. }: &Pace,
    ) -> Result<Sample> {
        let tables = format!("TRUNCATE idem_bench.effects, idem_bench.by_hand, {SCHEMA}.processed_messages");
        run(&mut self.conn, tables).await?;
        let client = B::connect(address, NAME).await?;
        client.create().await?;
        let messages = (rate * seconds).ceil() as usize;
        let total = WARM_UP + messages;
        let times = Times::new(total);
        let load = Load { address: address.to_owned(), warm_up: WARM_UP, messages, rate: *rate, times: times.clone() };
        let published = async { load.start::<B>().await? };
        let patience = PATIENCE + Duration::from_secs_f64(*seconds);
        let consumed = async {
            match side {
                Side::Idem => self.idem(B::source(address, NAME).await?, &times, total).await,
                Side::ByHand => {
                    let consumer = C::subscribe(address, NAME, CONCURRENCY).await?;
                    consumer::run(consumer, &self.by_hand, CONCURRENCY.into(), &times, total).await
                }
            }
        };
        // Both at once, so that a publisher that fails ends the run with its error.
        let both = timeout(patience, async { tokio::try_join!(consumed, published) });
        let ((), rate) = both.await.with_context(|| format!("not processed within {patience:?}"))??;
        client.delete().await?;
        self.verify(side, total).await?;
        let Latency { p50, p99 } = times.latency(WARM_UP, messages)?;
        Ok(Sample { p50, p99, rate })
    }

    async fn idem(&self, source: impl idem::Source, times: &Times, total: usize) -> Result<()> {
        let (source, processed) = (Tapped::new(source, Timed(times.clone())), times.clone());
        let worker = Worker::new("bench", self.store.clone(), source)
            .handler::<order_paid>()
            .concurrency(CONCURRENCY.into())
            .observe(move |_, outcome| {
                if *outcome == Outcome::Processed {
                    processed.processed();
                }
            });
        Ok(worker.run_until(times.reached(total)).await?)
    }

    /// Checks that each message has its effect, once.
    async fn verify(&mut self, side: Side, total: usize) -> Result<()> {
        let number = if side == Side::Idem { IDEM } else { BY_HAND };
        let text = "SELECT count(*) FROM idem_bench.effects WHERE side = $1";
        let effects: i64 = sqlx::query_scalar(text).bind(number).fetch_one(&mut self.conn).await?;
        ensure!(effects == total as i64, "{total} messages made {effects} rows");
        Ok(())
    }
}
