//! A consumer by rdkafka, which commits what is finished.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use bytes::Bytes;
use rdkafka::consumer::{Consumer as _, StreamConsumer};
use rdkafka::{ClientConfig, Message};
use uuid::Uuid;

use super::consumer::Consumer;

pub(crate) struct Topic {
    name: Arc<str>,
    consumer: Arc<StreamConsumer>,
    unfinished: Unfinished,
}

/// The offsets in progress of each partition: only what lies before all of them may be committed.
type Unfinished = Arc<Mutex<HashMap<i32, Offsets>>>;

#[derive(Default)]
struct Offsets {
    in_progress: BTreeSet<i64>,
    last: i64,
}

impl Offsets {
    /// Finishes an offset. Returns the last one before which all are finished, itself included.
    fn finish(&mut self, offset: i64) -> i64 {
        self.in_progress.remove(&offset);
        self.in_progress.first().map_or(self.last, |first| first - 1)
    }
}

pub(crate) struct Ack {
    name: Arc<str>,
    consumer: Arc<StreamConsumer>,
    unfinished: Unfinished,
    partition: i32,
    offset: i64,
}

impl Consumer for Topic {
    type Ack = Ack;

    async fn subscribe(address: &str, name: &str, _concurrency: u16) -> Result<Self> {
        let consumer: StreamConsumer = ClientConfig::new()
            .set("bootstrap.servers", address)
            // Not the group of the worker, which may still be a member, and not one that has committed offsets.
            .set("group.id", format!("{name}-{}", Uuid::new_v4()))
            .set("auto.offset.reset", "earliest")
            .set("enable.auto.offset.store", "false")
            .create()?;
        consumer.subscribe(&[name])?;
        Ok(Self { name: name.into(), consumer: Arc::new(consumer), unfinished: Unfinished::default() })
    }

    async fn next(&mut self) -> Result<(Bytes, Ack)> {
        let message = self.consumer.recv().await?;
        let (partition, offset) = (message.partition(), message.offset());
        let payload = Bytes::copy_from_slice(message.payload().unwrap_or_default());
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        let offsets = unfinished.entry(partition).or_default();
        offsets.in_progress.insert(offset);
        offsets.last = offset;
        let (name, consumer, unfinished) = (self.name.clone(), self.consumer.clone(), self.unfinished.clone());
        Ok((payload, Ack { name, consumer, unfinished, partition, offset }))
    }

    async fn ack(ack: Ack) -> Result<()> {
        let mut unfinished = ack.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        let last = unfinished.entry(ack.partition).or_default().finish(ack.offset);
        // Stored under the lock, so that a lower one cannot overtake it.
        if last >= 0 {
            ack.consumer.store_offset(&ack.name, ack.partition, last)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_finished_when_all_before_it_are() {
        let mut offsets = Offsets { in_progress: (10..13).collect(), last: 12 };
        assert_eq!(offsets.finish(11), 9);
        assert_eq!(offsets.finish(10), 11);
        assert_eq!(offsets.finish(12), 12);
    }
}
