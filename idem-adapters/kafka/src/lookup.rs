//! Offsets of many partitions, looked up together.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaResult;
use rdkafka::{Offset, TopicPartitionList};

use crate::partition::TopicPartition;

/// Looks up an offset of each of these partitions: its beginning, its end, or the first one with a timestamp (in
/// milliseconds, as [`Offset::Offset`]) or a later one, or `None` if no message has the timestamp. Sends one request to each
/// leader, and fails if any partition has no answer. An answer may come half a second late, behind that to a fetch.
pub(crate) fn offsets<'a, C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    partitions: impl IntoIterator<Item = &'a TopicPartition>,
    which: Offset,
    patience: Duration,
) -> KafkaResult<BTreeMap<TopicPartition, Option<i64>>> {
    let partitions: Vec<_> = partitions.into_iter().collect();
    if partitions.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut asked = TopicPartitionList::new();
    for partition in &partitions {
        asked.add_partition_offset(&partition.topic, partition.number, which)?;
    }
    let answer = consumer.offsets_for_times(asked, patience)?;
    let mut found = BTreeMap::new();
    for partition in partitions {
        if let Some(at) = answer.find_partition(&partition.topic, partition.number) {
            at.error()?;
            found.insert(partition.clone(), at.offset().to_raw().filter(|at| *at >= 0));
        }
    }
    Ok(found)
}
