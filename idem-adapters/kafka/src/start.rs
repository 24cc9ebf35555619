//! Where a partition begins.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};

use crate::error::{Loss, out_of_range};
use crate::identity;
use crate::plan::Plan;

/// Where a group begins in a partition in which it has committed nothing yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Start {
    /// At the oldest message that is there.
    #[default]
    Earliest,
    /// With what is published after the first member of the group has come. It is written down before anything is
    /// delivered, so that nothing published from then on is skipped, whatever crashes. It is for a group that is new: a
    /// partition that is added later begins at its first message, since nobody meant to skip those.
    Latest,
}

/// Each answer of the brokers that a rebalance waits for.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);

/// Where one partition begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Begin {
    pub(crate) partition: i32,
    pub(crate) offset: Offset,
    /// It was decided just now and is to be written down.
    pub(crate) decided: bool,
}

/// Whether the group has committed nothing in this topic at all.
pub(crate) fn is_new<C: ConsumerContext>(consumer: &BaseConsumer<C>, plan: &Plan) -> Result<bool, Loss> {
    let mut all = TopicPartitionList::new();
    for partition in &plan.known {
        all.add_partition(&plan.topic, *partition);
    }
    let committed = committed(consumer, plan, all, None)?;
    Ok(committed.iter().all(|(_, offset)| offset.is_none()))
}

/// Where these partitions begin, of the topic with this id. An offset that is out of range is an error, and never begins elsewhere.
pub(crate) fn begin<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    plan: &Plan,
    assigned: &TopicPartitionList,
    id: Option<&str>,
) -> Result<Vec<Begin>, Loss> {
    let mut begins = Vec::new();
    for (partition, committed) in committed(consumer, plan, assigned.clone(), id)? {
        let decided = committed.is_none() && plan.skips(partition);
        let offset = match committed {
            Some(offset) => {
                check(consumer, plan, partition, offset)?;
                Offset::Offset(offset)
            }
            None if decided => Offset::Offset(range(consumer, plan, partition)?.1),
            None => Offset::Beginning,
        };
        begins.push(Begin { partition, offset, decided });
    }
    Ok(begins)
}

/// That this offset is there, or is the next one.
pub(crate) fn check<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    plan: &Plan,
    partition: i32,
    offset: i64,
) -> Result<(), Loss> {
    let (low, high) = range(consumer, plan, partition)?;
    if (low..=high).contains(&offset) {
        return Ok(());
    }
    Err(out_of_range(&plan.config, &plan.group, (&plan.topic, partition, offset), (low, high)))
}

fn range<C: ConsumerContext>(consumer: &BaseConsumer<C>, plan: &Plan, partition: i32) -> Result<(i64, i64), Loss> {
    consumer.fetch_watermarks(&plan.topic, partition, ANSWER).map_err(|error| unanswered(plan, &error))
}

fn committed<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    plan: &Plan,
    partitions: TopicPartitionList,
    id: Option<&str>,
) -> Result<Vec<(i32, Option<i64>)>, Loss> {
    if partitions.count() == 0 {
        return Ok(Vec::new());
    }
    let answer = consumer.committed_offsets(partitions, ANSWER).map_err(|error| unanswered(plan, &error))?;
    let mut committed = Vec::new();
    for element in answer.elements() {
        element.error().map_err(|error| unanswered(plan, &error))?;
        let mut offset = if let Offset::Offset(offset) = element.offset() { Some(offset) } else { None };
        if offset.is_some() && id.is_some_and(|id| identity::is_of_another(&element, id)) {
            tracing::warn!(
                topic = %plan.topic,
                partition = element.partition(),
                offset,
                "the offset was committed for a topic of this name that was deleted: the new one is begun anew"
            );
            offset = None;
        }
        committed.push((element.partition(), offset));
    }
    Ok(committed)
}

fn unanswered(plan: &Plan, error: &KafkaError) -> Loss {
    let what = format!("where {} begins cannot be found out", plan.place());
    Loss::Broker(what, error.to_string())
}
