//! Tries partitions again that have stalled for a cause that may pass.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;
use rdkafka::{Offset, TopicPartitionList};

use crate::member::Member;
use crate::partition::TopicPartition;

/// How long to wait for answers. Nothing else is served meanwhile.
const ANSWER: Duration = Duration::from_secs(2);

impl Member {
    /// Tries the partitions again that are due.
    pub(crate) fn retry(&self, consumer: &BaseConsumer<Self>) {
        if self.shared.is_lost() {
            return;
        }
        let failing = self.shared.lock().assigned.due(Instant::now());
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
