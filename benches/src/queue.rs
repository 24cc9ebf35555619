//! The broker of all sides: deliveries preloaded in memory, delivered in order, with their acks counted.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use bytes::Bytes;
use idem::adapter::{Acker, Settled, SubscribeOptions};
use idem::{BoxError, Delivery, Source};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

/// A queue that is filled once and emptied once. Clones share it.
#[derive(Clone)]
pub(crate) struct Queue(Arc<Inner>);

struct Inner {
    waiting: Mutex<VecDeque<Bytes>>,
    /// The number of deliveries that have not been acked.
    left: AtomicUsize,
    /// The number of unacked deliveries at which the clock starts.
    timed: usize,
    /// The clock does not start by itself.
    pauses: bool,
    paused: Notify,
    started: OnceLock<Instant>,
    emptied: OnceLock<Instant>,
    empty: Notify,
    /// How many deliveries were stored in the inbox first.
    stored: AtomicUsize,
}

impl Queue {
    pub(crate) fn new(payloads: Vec<Bytes>) -> Self {
        let tenth = payloads.len() / 10;
        Self::starting_after(payloads, tenth, false)
    }

    /// Creates a queue whose clock starts when [`go_on`](Self::go_on) is called, after this many acks.
    pub(crate) fn pausing_after(payloads: Vec<Bytes>, acks: usize) -> Self {
        Self::starting_after(payloads, acks, true)
    }

    fn starting_after(payloads: Vec<Bytes>, acks: usize, pauses: bool) -> Self {
        Self(Arc::new(Inner {
            left: AtomicUsize::new(payloads.len()),
            timed: payloads.len().saturating_sub(acks),
            pauses,
            paused: Notify::new(),
            waiting: Mutex::new(payloads.into()),
            started: OnceLock::new(),
            emptied: OnceLock::new(),
            empty: Notify::new(),
            stored: AtomicUsize::new(0),
        }))
    }

    /// Returns the next payload, if one is left.
    fn pop(&self) -> Option<Bytes> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Processes everything with `lanes` tasks; returns the messages per second.
    pub(crate) async fn process<F>(
        self,
        lanes: usize,
        process: impl Fn(Bytes) -> F + Clone + Send + 'static,
    ) -> Result<f64>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        for _ in 0..lanes {
            let (queue, process) = (self.clone(), process.clone());
            tasks.spawn(async move {
                while let Some(payload) = queue.pop() {
                    process(payload).await?;
                    queue.ack();
                }
                anyhow::Ok(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        self.rate()
    }

    /// Acks one delivery. The first tenth of the acks covers the start of the worker and its tasks; the clock then
    /// starts, unless the queue pauses there, and the last ack stops it.
    pub(crate) fn ack(&self) {
        let left = self.0.left.fetch_sub(1, SeqCst) - 1;
        if left == self.0.timed {
            match self.0.pauses {
                true => self.0.paused.notify_one(),
                false => self.go_on(),
            }
        }
        if left == 0 {
            self.0.emptied.get_or_init(Instant::now);
            self.0.empty.notify_one();
        }
    }

    /// Counts a delivery that was stored in the inbox. It is acked when it has run.
    pub(crate) fn store(&self) {
        self.0.stored.fetch_add(1, SeqCst);
    }

    /// Returns how many deliveries were stored in the inbox so far.
    pub(crate) fn stored(&self) -> usize {
        self.0.stored.load(SeqCst)
    }

    /// Waits for the acks before the pause.
    pub(crate) async fn paused(&self) {
        self.0.paused.notified().await;
    }

    /// Starts the clock.
    pub(crate) fn go_on(&self) {
        self.0.started.get_or_init(Instant::now);
    }

    /// Returns how many deliveries are not acked.
    pub(crate) fn left(&self) -> usize {
        self.0.left.load(SeqCst)
    }

    /// Waits until all deliveries are acked.
    pub(crate) async fn emptied(&self) {
        self.0.empty.notified().await;
    }

    /// Returns when the last delivery was acked.
    pub(crate) fn emptied_at(&self) -> Option<Instant> {
        self.0.emptied.get().copied()
    }

    /// Returns the acks per second while the clock ran.
    pub(crate) fn rate(&self) -> Result<f64> {
        let times = self.emptied_at().zip(self.0.started.get());
        let (emptied, started) = times.context("the side ended before its queue was empty")?;
        Ok(self.0.timed as f64 / emptied.duration_since(*started).as_secs_f64())
    }
}

/// The queue as idem's worker sees it.
pub(crate) struct Deliveries {
    queue: Queue,
    name: Arc<str>,
    capacity: Arc<Semaphore>,
    counts: bool,
}

impl Deliveries {
    pub(crate) fn of(queue: &Queue) -> Self {
        Self { queue: queue.clone(), name: "orders".into(), capacity: Arc::new(Semaphore::new(0)), counts: true }
    }

    /// Returns a source whose acks do not count, because messages are stored first.
    pub(crate) fn uncounted(queue: &Queue) -> Self {
        Self { counts: false, ..Self::of(queue) }
    }
}

impl Source for Deliveries {
    type Acker = Ack;

    fn system(&self) -> &'static str {
        "memory"
    }

    fn name(&self) -> &str {
        &self.name
    }

    async fn subscribe(&mut self, options: SubscribeOptions) -> Result<(), BoxError> {
        self.capacity.add_permits(options.max_unsettled.into());
        Ok(())
    }

    async fn next(&mut self) -> Result<(Delivery, Ack), BoxError> {
        // An acker returns the permit.
        self.capacity.acquire().await?.forget();
        match self.queue.pop() {
            Some(payload) => {
                let ack = Ack { queue: self.counts.then(|| self.queue.clone()), capacity: self.capacity.clone() };
                Ok((Delivery::new(self.name.clone(), payload), ack))
            }
            None => std::future::pending().await,
        }
    }

    async fn drain(&mut self) {}

    async fn close(&mut self) {}
}

/// Acks one delivery.
pub(crate) struct Ack {
    queue: Option<Queue>,
    capacity: Arc<Semaphore>,
}

impl Acker for Ack {
    async fn ack(self) -> Result<Settled, BoxError> {
        self.capacity.add_permits(1);
        if let Some(queue) = self.queue {
            queue.ack();
        }
        Ok(Settled::Sent)
    }

    async fn release(self) -> Result<Settled, BoxError> {
        Ok(Settled::Stale)
    }
}
