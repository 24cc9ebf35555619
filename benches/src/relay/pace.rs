//! The confirms of a sink, counted and timed; and the time from commit to confirm at a fixed rate, in one process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use idem::Postgres;
use idem::adapter::{Sink, SinkError, StagedMessage};
use idem::outbox::{Outgoing, StoreOutbox};
use idem_brokers::Broker as Client;
use idem_test::tap::SinkTap;
use sqlx::PgPool;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::interval;
use uuid::Uuid;

use super::sides::{NAME, OUTBOX, Sides, payload};
use crate::samples::quantile;

/// Messages per second.
pub(super) const RATE: f64 = 1000.0;

/// The percentiles of one run, in milliseconds, and the reached rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) p50: f64,
    pub(super) p99: f64,
    /// Messages per second.
    pub(super) rate: f64,
}

/// Commits a message at each tick, and wakes the relay of this process, as a worker does.
pub(super) async fn relay<B: Client>(sides: &mut Sides, address: &str, seconds: f64) -> Result<Sample> {
    let client = sides.prepare::<B>(address).await?;
    let messages = (RATE * seconds).ceil() as usize;
    let confirms = Confirms::new(messages);
    let committing = tokio::spawn(commit_all(sides.pool.clone(), sides.store.outbox(OUTBOX), messages));
    let published = sides.relay::<B>(address, &confirms, confirms.all());
    let ((), (committed, reached)) = tokio::try_join!(published, async { committing.await? })?;
    sides.verify().await?;
    client.delete().await?;
    sample(committed, &confirms.times(), reached)
}

/// Begins a commit at each tick, whether the earlier ones have ended or not. Returns their times, and how many have ended per
/// second, up to the last one.
async fn commit_all(
    pool: PgPool,
    outbox: StoreOutbox<Postgres>,
    messages: usize,
) -> Result<(Vec<(Uuid, Instant)>, f64)> {
    let (mut running, began) = (JoinSet::new(), Instant::now());
    let mut ticks = interval(Duration::from_secs_f64(1.0 / RATE));
    for number in 0..messages {
        ticks.tick().await;
        running.spawn(commit(pool.clone(), outbox.clone(), number));
    }
    let times = running.join_all().await.into_iter().collect::<Result<_>>()?;
    Ok((times, messages as f64 / began.elapsed().as_secs_f64()))
}

/// Stages a message in a transaction. Returns its id, and when COMMIT was answered.
async fn commit(pool: PgPool, outbox: StoreOutbox<Postgres>, number: usize) -> Result<(Uuid, Instant)> {
    let id = Uuid::new_v4();
    let mut tx = pool.begin().await?;
    outbox.stage(&mut tx, [Outgoing::new(NAME, payload(number)).id(id)]).await?;
    tx.commit().await?;
    let committed = Instant::now();
    outbox.wake();
    Ok((id, committed))
}

/// Measures behind the first tenth, as the rates do: a relay that starts has to connect, and meanwhile messages are committed.
fn sample(mut begun: Vec<(Uuid, Instant)>, confirmed: &HashMap<Uuid, Instant>, rate: f64) -> Result<Sample> {
    begun.sort_by_key(|(_, at)| *at);
    let measured = begun.split_off(begun.len() / 10);
    let mut millis = Vec::with_capacity(measured.len());
    for (id, begun) in &measured {
        let confirmed = confirmed.get(id).context("a message was not confirmed")?;
        // A poll can find the row before this process has read the answer of COMMIT.
        millis.push(confirmed.saturating_duration_since(*begun).as_secs_f64() * 1000.0);
    }
    millis.sort_by(f64::total_cmp);
    Ok(Sample { p50: quantile(&millis, 0.5), p99: quantile(&millis, 0.99), rate })
}

/// When messages were confirmed. Clones share it.
#[derive(Clone)]
pub(super) struct Confirms(Arc<Inner>);

struct Inner {
    messages: usize,
    /// How many others are in front of them.
    others: usize,
    /// How many messages were begun, with the others.
    begun: AtomicUsize,
    times: Mutex<Vec<(Uuid, Instant)>>,
    confirmed: watch::Sender<usize>,
}

impl Confirms {
    /// Creates it for this many messages.
    pub(super) fn new(messages: usize) -> Self {
        Self::behind(0, messages)
    }

    /// Creates it for this many messages behind others, which a relay deletes without publishing them.
    pub(super) fn behind(others: usize, messages: usize) -> Self {
        let (times, confirmed) = (Mutex::new(Vec::with_capacity(messages)), watch::Sender::new(0));
        Self(Arc::new(Inner { messages, others, begun: AtomicUsize::new(0), times, confirmed }))
    }

    /// Begins a message, and returns whether it is one of the others.
    fn begin_other(&self) -> bool {
        self.0.begun.fetch_add(1, Relaxed) < self.0.others
    }

    pub(super) fn add(&self, id: Uuid) {
        self.0.times.lock().unwrap_or_else(PoisonError::into_inner).push((id, Instant::now()));
        self.0.confirmed.send_modify(|confirmed| *confirmed += 1);
    }

    /// Waits until all messages are confirmed.
    pub(super) async fn all(&self) {
        // The sender is in `self`, so it cannot be gone.
        let _ = self.0.confirmed.subscribe().wait_for(|confirmed| *confirmed >= self.0.messages).await;
    }

    /// Returns the confirms per second. The clock starts after a tenth of them, which covers the start.
    pub(super) fn rate(&self) -> f64 {
        let times = self.0.times.lock().unwrap_or_else(PoisonError::into_inner);
        let first = times.len() / 10;
        match (times.get(first), times.last()) {
            (Some((_, begun)), Some((_, ended))) => {
                (times.len() - 1 - first) as f64 / ended.duration_since(*begun).as_secs_f64()
            }
            _ => f64::NAN,
        }
    }

    /// Returns when each message was confirmed for the first time.
    pub(super) fn times(&self) -> HashMap<Uuid, Instant> {
        let mut times = HashMap::new();
        for (id, at) in self.0.times.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            times.entry(*id).or_insert(*at);
        }
        times
    }
}

impl SinkTap for Confirms {
    async fn publish<K: Sink>(&self, sink: &K, message: &StagedMessage) -> Result<(), SinkError> {
        if self.begin_other() {
            return Ok(());
        }
        sink.publish(message).await?;
        self.add(message.id());
        Ok(())
    }
}
