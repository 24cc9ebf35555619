//! Tries partitions again that have stalled for a cause that may pass.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;
use rdkafka::{Offset, TopicPartitionList};

use crate::member::Member;
use crate::partition::TopicPartition;
use crate::stall::Cause;
use crate::start;

/// How long to wait for answers. Nothing else is served meanwhile.
const ANSWER: Duration = Duration::from_secs(2);

impl Member {
    /// Tries the partitions again that are due.
    pub(crate) fn retry(&self, consumer: &BaseConsumer<Self>) {
        if self.shared.is_lost() {
            return;
        }
        self.place(consumer);
        let failing = self.shared.lock().assigned.due(Cause::Failing, Instant::now());
        for (partition, place) in &failing {
            let again = go_on(consumer, partition, *place);
            if let Some(stall) = self.shared.lock().assigned.stall(partition) {
                if again.is_ok() { stall.end() } else { stall.postpone(Instant::now()) }
            }
            let TopicPartition { topic, number: partition } = partition;
            match again {
                Ok(()) => {
                    tracing::info!(%topic, partition, offset = place, "a partition that was stalled is tried again")
                }
                Err(error) => tracing::warn!(%topic, partition, %error, "a partition is still stalled"),
            }
        }
        if !failing.is_empty() {
            self.tell();
        }
    }

    /// Looks up again where the group starts in partitions in which that was not known, and commits it.
    fn place(&self, consumer: &BaseConsumer<Self>) {
        let unplaced = self.shared.lock().assigned.due(Cause::Unplaced, Instant::now());
        if unplaced.is_empty() {
            return;
        }
        let unplaced: Vec<_> = unplaced.into_iter().map(|(partition, _)| partition).collect();
        let mut begins = start::late(consumer, &self.plan, &unplaced, ANSWER);
        if let Err(error) = self.decide(consumer, &begins) {
            tracing::warn!(%error, "where the group begins could not be committed; it is looked up again");
            begins.clear();
        }
        let mut inner = self.shared.lock();
        for partition in &unplaced {
            if let Some(stall) = inner.assigned.stall(partition) {
                stall.postpone(Instant::now());
            }
        }
        for begin in &begins {
            if let Offset::Offset(offset) = begin.offset {
                inner.assigned.begin(&begin.partition, offset, Instant::now());
            }
        }
    }
}

/// Fetches this partition again, from this offset or else from its beginning.
fn go_on(consumer: &BaseConsumer<Member>, partition: &TopicPartition, place: Option<i64>) -> KafkaResult<()> {
    let mut list = TopicPartitionList::new();
    let place = place.map_or(Offset::Beginning, Offset::Offset);
    list.add_partition_offset(&partition.topic, partition.number, place)?;
    for sought in consumer.seek_partitions(list.clone(), ANSWER)?.elements() {
        sought.error()?;
    }
    consumer.resume(&list)
}
