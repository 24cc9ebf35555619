//! Where a partition begins.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};

use crate::error::{self, Loss, expired};
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
    ///
    /// A group loses its offsets when nobody has consumed for long (`offsets.retention.minutes`, a week by default), and
    /// would then skip what came meanwhile. So it is refused where the database has claims of the worker, or this source
    /// has consumed before, and the group has committed nothing.
    Latest,
}

/// How long an answer of the brokers is waited for.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);

/// The longest wait within a rebalance, where nothing else is served.
const STEP: Duration = Duration::from_secs(2);

/// Where one partition begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Begin {
    pub(crate) partition: i32,
    pub(crate) offset: Offset,
    /// It was decided just now and is to be written down.
    pub(crate) decided: bool,
}

/// The ends of the partitions, where the group has committed nothing in this topic at all: that is where it begins at
/// [`Start::Latest`]. `None` where it has.
///
/// Asked before the group is joined, so that no other member waits for the answers. A partition that does not answer has no
/// end here.
pub(crate) fn ends<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    plan: &Plan,
) -> Result<Option<BTreeMap<i32, i64>>, Loss> {
    let mut all = TopicPartitionList::new();
    for partition in &plan.known {
        all.add_partition(&plan.topic, *partition);
    }
    if committed(consumer, plan, all, None, &|| false)?.iter().any(|(_, offset)| offset.is_some()) {
        return Ok(None);
    }
    if plan.has_history {
        return Err(expired(&plan.config, &plan.group, &plan.topic));
    }
    let mut ends = BTreeMap::new();
    for partition in &plan.known {
        match consumer.fetch_watermarks(&plan.topic, *partition, STEP) {
            Ok((_, end)) => drop(ends.insert(*partition, end)),
            Err(error) => tracing::warn!(topic = %plan.topic, partition, %error, "the end of a partition is not known"),
        }
    }
    Ok(Some(ends))
}

/// Where these partitions begin, of the topic with this id. Nothing but the group's coordinator is asked, since all members
/// wait meanwhile: an offset that is out of range is noticed when it is read from.
pub(crate) fn begin<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    plan: &Plan,
    assigned: &TopicPartitionList,
    id: Option<&str>,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<Begin>, Loss> {
    let begin = |(partition, committed): (i32, Option<i64>)| {
        let decided = committed.is_none() && plan.skips(partition);
        let offset = match committed.or_else(|| plan.end(partition).filter(|_| decided)) {
            Some(offset) => Offset::Offset(offset),
            // Where the group would begin is not known. Neither is anything skipped nor all of it delivered.
            None if decided => Offset::Invalid,
            None => Offset::Beginning,
        };
        Begin { partition, offset, decided: decided && offset != Offset::Invalid }
    };
    Ok(committed(consumer, plan, assigned.clone(), id, stop)?.into_iter().map(begin).collect())
}

/// What to say if this offset is neither there nor the next one. `None`: it is, or that cannot be found out now.
pub(crate) fn out_of_range<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    plan: &Plan,
    partition: i32,
    offset: Option<i64>,
    patience: Duration,
) -> Option<String> {
    let (low, high) = consumer.fetch_watermarks(&plan.topic, partition, patience).ok()?;
    let offset = offset.filter(|offset| !(low..=high).contains(offset))?;
    let range = format!("the partition has {low} to {high}");
    Some(error::out_of_range(&plan.config, &plan.group, (&plan.topic, partition, Some(offset)), &range))
}

/// What to say if the range of the partition cannot be told.
pub(crate) fn passed(plan: &Plan, partition: i32, offset: Option<i64>) -> String {
    error::out_of_range(&plan.config, &plan.group, (&plan.topic, partition, offset), "so says the broker")
}

fn committed<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    plan: &Plan,
    partitions: TopicPartitionList,
    id: Option<&str>,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<(i32, Option<i64>)>, Loss> {
    if partitions.count() == 0 {
        return Ok(Vec::new());
    }
    let until = Instant::now() + ANSWER;
    // In steps, so that a worker that ends meanwhile does not wait for a coordinator.
    let answer = loop {
        match consumer.committed_offsets(partitions.clone(), STEP) {
            Err(error) if stop() || Instant::now() >= until => return Err(unanswered(plan, &error)),
            Err(error) if error.rdkafka_error_code() == Some(RDKafkaErrorCode::OperationTimedOut) => {}
            answer => break answer.map_err(|error| unanswered(plan, &error))?,
        }
    };
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
