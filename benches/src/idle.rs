//! A worker as a user configures it, with a store that responds immediately and a source that always has a message.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use idem::adapter::{Acker, Settled, SubscribeOptions};
use idem::codec::{Codec, DecodeError};
use idem::prelude::*;
use idem::{BoxError, Delivery, Source};
use tokio::sync::{Notify, Semaphore};

use crate::nothing::{Nothing, Nowhere};

/// Runs a worker for this many messages; returns the time from the first ack to the last.
pub(crate) async fn run(in_flight: usize, messages: usize) -> Result<Duration> {
    let tally = Arc::new(Tally { left: messages.into(), all: messages, ..Tally::default() });
    let source = Numbers { next: 0, room: Arc::new(Semaphore::new(0)), tally: tally.clone(), name: "orders".into() };
    let worker = Worker::new("bench", Nothing, source).codec(Number).handler::<counted>().concurrency(in_flight);
    let done = tally.clone();
    worker.run_until(async move { done.done.notified().await }).await?;
    let (first, last) = (tally.first.get(), tally.last.get());
    last.zip(first).map(|(last, first)| last.duration_since(*first)).context("not all messages were processed")
}

/// The message: its number. Decoding it takes no time, because JSON is not part of idem.
pub(crate) struct Counted {
    number: u64,
}

#[idempotent(key = "number", name = "counted")]
async fn counted(message: Counted, _tx: &mut Nowhere) -> Result<(), std::convert::Infallible> {
    std::hint::black_box(message.number);
    Ok(())
}

#[derive(Debug)]
struct Number;

impl Codec<Counted> for Number {
    fn decode(&self, delivery: &Delivery) -> Result<Counted, DecodeError> {
        let number = delivery.data().first_chunk().map(|bytes| u64::from_be_bytes(*bytes)).ok_or("too short")?;
        Ok(Counted { number })
    }
}

#[derive(Default)]
struct Tally {
    left: AtomicUsize,
    all: usize,
    first: std::sync::OnceLock<Instant>,
    last: std::sync::OnceLock<Instant>,
    done: Notify,
}

struct Numbers {
    next: usize,
    room: Arc<Semaphore>,
    tally: Arc<Tally>,
    name: Arc<str>,
}

/// 97 bytes, of which the first eight are the number. Allocated in advance, so that no message allocates.
static PAYLOADS: std::sync::LazyLock<Vec<Bytes>> = std::sync::LazyLock::new(|| {
    let payload = |number: u64| Bytes::from([&number.to_be_bytes()[..], &[b' '; 89]].concat());
    (0..1024).map(payload).collect()
});

impl Source for Numbers {
    type Acker = Ack;

    fn system(&self) -> &'static str {
        "memory"
    }

    fn name(&self) -> &str {
        &self.name
    }

    async fn subscribe(&mut self, options: SubscribeOptions) -> Result<(), BoxError> {
        self.room.add_permits(options.max_unsettled.into());
        Ok(())
    }

    async fn next(&mut self) -> Result<(Delivery, Ack), BoxError> {
        if self.next == self.tally.all {
            return std::future::pending().await;
        }
        // An acker returns the permit.
        self.room.acquire().await?.forget();
        let payload = PAYLOADS[self.next % PAYLOADS.len()].clone();
        self.next += 1;
        let ack = Ack { room: self.room.clone(), tally: self.tally.clone() };
        Ok((Delivery::new(self.name.clone(), payload), ack))
    }

    async fn drain(&mut self) {}

    async fn close(&mut self) {}
}

struct Ack {
    room: Arc<Semaphore>,
    tally: Arc<Tally>,
}

impl Acker for Ack {
    async fn ack(self) -> Result<Settled, BoxError> {
        let tally = &self.tally;
        tally.first.get_or_init(Instant::now);
        if tally.left.fetch_sub(1, SeqCst) == 1 {
            tally.last.get_or_init(Instant::now);
            tally.done.notify_one();
        }
        self.room.add_permits(1);
        Ok(Settled::Sent)
    }

    async fn release(self) -> Result<Settled, BoxError> {
        Ok(Settled::Stale)
    }
}
