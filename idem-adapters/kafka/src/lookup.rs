//! Offsets of many partitions, looked up together.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::{Offset, TopicPartitionList};

use crate::partition::TopicPartition;

/// The answers. A partition without one is missing; [`Offset::End`] answers that no message has the timestamp.
pub(crate) type Offsets = BTreeMap<TopicPartition, Offset>;

/// Looks up offsets of each of these partitions, in this order: its beginning, its end, or the first one with a
/// timestamp (in milliseconds, as [`Offset::Offset`]) or a later one. A partition without an answer to one is not asked
/// for the next.
///
/// Takes at most `patience`, however many partitions there are, and half of it for one answer. An answer may come half a
/// second late, behind that to a fetch. Each leader is asked by itself, so that a partition without a leader, or one
/// leader that does not answer, holds back only those with the same leader.
pub(crate) fn offsets<C: ConsumerContext, const N: usize>(
    consumer: &BaseConsumer<C>,
    partitions: &[TopicPartition],
    which: [Offset; N],
    patience: Duration,
) -> [Offsets; N] {
    let until = Instant::now() + patience;
    let left = || {
        let left = until.saturating_duration_since(Instant::now()).min(patience / 2);
        Some(left).filter(|left| !left.is_zero())
    };
    let mut leaders = leaders(consumer, partitions, left);
    which.map(|which| {
        let mut found = Offsets::new();
        for led in leaders.values_mut() {
            ask_one(consumer, led, which, left, &mut found);
            led.retain(|partition| found.contains_key(*partition));
        }
        found
    })
}

/// Looks up partitions of one leader, one by one if they cannot be looked up together.
fn ask_one<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    led: &[&TopicPartition],
    which: Offset,
    left: impl Fn() -> Option<Duration>,
    found: &mut Offsets,
) {
    let mut ask = |led: &[&TopicPartition]| {
        let Some(left) = left() else { return true };
        match ask(consumer, led.iter().copied(), which, left) {
            Ok(answer) => {
                found.extend(answer);
                true
            }
            Err(error) => {
                let first = led.first().map(tracing::field::display);
                tracing::warn!(first, partitions = led.len(), %error, "offsets of partitions cannot be looked up now");
                matches!(error.rdkafka_error_code(), Some(Code::OperationTimedOut | Code::BrokerTransportFailure))
            }
        }
    };
    // An error of one partition hides the answers about the others. A leader that does not answer is not asked again.
    if !ask(led) && led.len() > 1 {
        for one in led {
            ask(&[*one]);
        }
    }
}

/// The partitions of each broker that leads any of them.
fn leaders<'a, C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    partitions: &'a [TopicPartition],
    left: impl Fn() -> Option<Duration>,
) -> BTreeMap<i32, Vec<&'a TopicPartition>> {
    let mut topics = BTreeMap::<_, Vec<_>>::new();
    partitions.iter().for_each(|partition| topics.entry(&*partition.topic).or_default().push(partition));
    let mut led = BTreeMap::<_, Vec<_>>::new();
    for (name, partitions) in topics {
        let Some(left) = left() else { break };
        // If one request gets no answer, the next would take as long.
        let Ok(metadata) = consumer.fetch_metadata(Some(name), left) else { break };
        let Some(topic) = metadata.topics().iter().find(|topic| topic.name() == name) else { continue };
        let leaders: BTreeMap<_, _> = topic.partitions().iter().map(|one| (one.id(), one.leader())).collect();
        for partition in partitions {
            if let Some(leader) = leaders.get(&partition.number).filter(|leader| **leader >= 0) {
                led.entry(*leader).or_default().push(partition);
            }
        }
    }
    led
}

/// Looks up these partitions with one request to each of their leaders. Fails if any of them has no answer.
pub(crate) fn ask<'a, C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    partitions: impl Iterator<Item = &'a TopicPartition>,
    which: Offset,
    patience: Duration,
) -> KafkaResult<Offsets> {
    let partitions: Vec<_> = partitions.collect();
    if partitions.is_empty() {
        return Ok(Offsets::new());
    }
    let mut asked = TopicPartitionList::new();
    for partition in &partitions {
        asked.add_partition_offset(&partition.topic, partition.number, which)?;
    }
    let answer = consumer.offsets_for_times(asked, patience)?;
    let mut found = Offsets::new();
    for partition in partitions {
        if let Some(at) = answer.find_partition(&partition.topic, partition.number) {
            at.error()?;
            found.insert(partition.clone(), at.offset());
        }
    }
    Ok(found)
}
