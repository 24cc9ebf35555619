//! When messages were published and committed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Result, ensure};
use bytes::Bytes;
use tokio::sync::watch;
use uuid::Uuid;

use crate::message::OrderPaid;
use crate::samples::quantile;

/// The times of one run. Clones share them.
#[derive(Clone)]
pub(crate) struct Times(Arc<Inner>);

struct Inner {
    /// Both the publisher and the consumer are in this process, so one clock serves both.
    began: Instant,
    committed: Mutex<Vec<(Bytes, Instant)>>,
    processed: watch::Sender<usize>,
}

/// The percentiles of one run, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl Times {
    /// Creates them, with space for this many messages.
    pub(crate) fn new(messages: usize) -> Self {
        let committed = Mutex::new(Vec::with_capacity(messages));
        Self(Arc::new(Inner { began: Instant::now(), committed, processed: watch::Sender::new(0) }))
    }

    /// Returns a message that says when it is published, which is now: its amount is that time.
    pub(crate) fn message(&self, number: usize) -> Result<Vec<u8>> {
        let event_id = Uuid::new_v4();
        let amount = self.0.began.elapsed().as_micros() as i64;
        Ok(serde_json::to_vec(&OrderPaid { event_id, order_id: number as i64, amount })?)
    }

    /// Records that the transaction of this message has just been committed. The payload is decoded later, so that both
    /// sides spend the same time here.
    pub(crate) fn committed(&self, payload: Bytes) {
        self.0.committed.lock().unwrap_or_else(PoisonError::into_inner).push((payload, Instant::now()));
    }

    /// Counts a message that is processed and settled.
    pub(crate) fn processed(&self) {
        self.0.processed.send_modify(|processed| *processed += 1);
    }

    /// Waits until this many messages are processed.
    pub(crate) async fn reached(&self, messages: usize) {
        // The sender is in `self`, so it cannot be gone.
        let _ = self.0.processed.subscribe().wait_for(|processed| *processed >= messages).await;
    }

    /// Returns the percentiles of the messages from number `first` on, of which there are `messages`.
    pub(crate) fn latency(&self, first: usize, messages: usize) -> Result<Latency> {
        let mut found = HashMap::with_capacity(messages);
        for (payload, at) in self.0.committed.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let event: OrderPaid = serde_json::from_slice(payload)?;
            if event.order_id >= first as i64 {
                let micros = at.duration_since(self.0.began).as_micros() as i64 - event.amount;
                // A redelivered message was committed the first time.
                found.entry(event.order_id).or_insert(micros as f64 / 1000.0);
            }
        }
        ensure!(
            found.len() == messages,
            "{} of {messages} messages were not committed when they were delivered, so their latency is not known",
            messages.saturating_sub(found.len())
        );
        let mut sorted: Vec<f64> = found.into_values().collect();
        sorted.sort_by(f64::total_cmp);
        Ok(Latency { p50: quantile(&sorted, 0.5), p99: quantile(&sorted, 0.99) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_warm_up_do_not_count_and_a_missing_one_is_an_error() {
        let times = Times::new(3);
        for number in 0..3 {
            times.committed(times.message(number).unwrap().into());
        }
        let latency = times.latency(1, 2).unwrap();
        assert!(latency.p50 <= latency.p99 && latency.p99 < 1000.0, "{latency:?}");
        assert!(times.latency(1, 3).is_err());
    }
}
