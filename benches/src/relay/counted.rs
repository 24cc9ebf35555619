//! Counts and times the confirms of a sink.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use idem::adapter::{Sink, SinkError, StagedMessage};
use idem_test::tap::SinkTap;
use tokio::sync::watch;
use uuid::Uuid;

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
