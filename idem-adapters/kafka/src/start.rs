//! Determines where a partition starts.

use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::{Offset, TopicPartitionList};

use crate::error::{self, Loss, expired, passes};
use crate::identity;
use crate::partition::TopicPartition;
use crate::plan::{Begins, Plan, Start};

/// How long to wait for an answer of the brokers.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);

/// The longest wait during a rebalance, while nothing else is served.
const STEP: Duration = Duration::from_secs(2);

/// The pause before an operation is retried after a transient error.
const PAUSE: Duration = Duration::from_millis(50);

/// The start position of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Begin {
    pub(crate) partition: TopicPartition,
    pub(crate) offset: Offset,
    /// The position was just determined and has to be committed.
    pub(crate) decided: bool,
}

/// Whether a partition may start elsewhere than at its first message.
pub(crate) fn decides(plan: &Plan) -> bool {
    plan.start != Start::Earliest || !plan.offsets.is_empty()
}

/// Determines the start positions of the existing partitions. Runs before the group is joined, so that no other member
/// waits for the answers.
pub(crate) fn decide<C: ConsumerContext>(consumer: &BaseConsumer<C>, plan: &Plan) -> Result<Begins, Loss> {
    let all: Vec<_> = plan.partitions().collect();
    if let Some((partition, _)) = plan.offsets.iter().find(|(partition, _)| !all.contains(partition)) {
        return Err(Loss::Refused(format!(
            ".start_at(..) names the partition {partition}, which {} does not have: remove it, or name an existing \
             one",
            plan.place()
        )));
    }
    let committed = committed(consumer, plan, &all, &|_| None, &|| false)?;
    let new = committed.iter().all(Option::is_none);
    let fresh: Vec<_> =
        all.into_iter().zip(committed).filter(|(_, at)| at.is_none()).map(|(partition, _)| partition).collect();
    let mut begins = match plan.start {
        Start::Latest if new && plan.has_history => {
            return Err(expired(&plan.config.place, &plan.group, plan.known.keys().map(|topic| &**topic)));
        }
        Start::Latest if new => ends(consumer, &fresh),
        Start::Earliest | Start::Latest => Begins::new(),
        Start::Time(time) => at_time(consumer, plan, &fresh, time)?,
    };
    for partition in fresh {
        if let Some(offset) = plan.offsets.get(&partition) {
            if let Some(why) = out_of_range(consumer, plan, &partition, Some(*offset), STEP) {
                return Err(Loss::Refused(format!(".start_at(..) cannot be kept: {why}")));
            }
            begins.insert(partition, Some(*offset));
        }
    }
    Ok(begins)
}

/// Returns the ends of these partitions. The end is `None` if there is no answer.
fn ends<C: ConsumerContext>(consumer: &BaseConsumer<C>, partitions: &[TopicPartition]) -> Begins {
    let end = |partition: &TopicPartition| {
        let end = consumer.fetch_watermarks(&partition.topic, partition.number, STEP).map(|(_, end)| end);
        if let Err(error) = &end {
            tracing::warn!(%partition, %error, "the end of a partition is not known");
        }
        (partition.clone(), end.ok())
    };
    partitions.iter().map(end).collect()
}

/// Returns the offset of the first message with this timestamp or a later one, or else the end, of each partition.
fn at_time<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    plan: &Plan,
    partitions: &[TopicPartition],
    time: SystemTime,
) -> Result<Begins, Loss> {
    // Fetched before the query by time, so that messages published between the two are not skipped if that query finds
    // none.
    let mut begins = ends(consumer, partitions);
    let millis = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let millis = Offset::Offset(i64::try_from(millis).unwrap_or(i64::MAX));
    let mut asked = TopicPartitionList::new();
    // A partition without an answer would hold back the answers for the others.
    for (partition, _) in begins.iter().filter(|(_, end)| end.is_some()) {
        asked
            .add_partition_offset(&partition.topic, partition.number, millis)
            .map_err(|error| unanswered(plan, &error))?;
    }
    if asked.count() == 0 {
        return Ok(begins);
    }
    let found = consumer.offsets_for_times(asked, ANSWER).and_then(whole).map_err(|error| unanswered(plan, &error))?;
    for (partition, begin) in &mut begins {
        if let Some(Offset::Offset(offset)) =
            found.find_partition(&partition.topic, partition.number).map(|at| at.offset())
        {
            *begin = Some(offset);
        }
    }
    Ok(begins)
}

/// Returns where these partitions start. `id` returns the id of a topic. Queries only the group's coordinator, since
/// all members wait meanwhile: an offset out of range is noticed when it is read from.
pub(crate) fn begin<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    plan: &Plan,
    assigned: &[TopicPartition],
    id: &dyn Fn(&str) -> Option<String>,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<Begin>, Loss> {
    let begin = |(partition, committed): (&TopicPartition, Option<i64>)| {
        let (offset, decided) = match (committed, plan.begins.get(partition)) {
            (Some(offset), _) => (Offset::Offset(offset), false),
            (None, Some(Some(offset))) => (Offset::Offset(*offset), true),
            // The start position is not known. The partition must neither skip messages nor deliver all of them.
            (None, Some(None)) => (Offset::Invalid, false),
            (None, None) => (Offset::Beginning, false),
        };
        Begin { partition: partition.clone(), offset, decided }
    };
    let committed = committed(consumer, plan, assigned, id, stop)?;
    Ok(assigned.iter().zip(committed).map(begin).collect())
}

/// The error text for an offset outside the partition's range. `None` if it is inside, or if the range cannot be read
/// now.
pub(crate) fn out_of_range<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    plan: &Plan,
    partition: &TopicPartition,
    offset: Option<i64>,
    patience: Duration,
) -> Option<String> {
    let (low, high) = consumer.fetch_watermarks(&partition.topic, partition.number, patience).ok()?;
    let offset = offset.filter(|offset| !(low..=high).contains(offset))?;
    let range = format!("the partition has {low} to {high}");
    Some(error::out_of_range(&plan.config.place, &plan.group, partition, Some(offset), &range))
}

/// The error text for an offset that the broker refuses, if the partition's range cannot be read.
pub(crate) fn passed(plan: &Plan, partition: &TopicPartition, offset: Option<i64>) -> String {
    error::out_of_range(&plan.config.place, &plan.group, partition, offset, "so says the broker")
}

/// Returns the offsets that the group has committed in these partitions.
fn committed<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    plan: &Plan,
    partitions: &[TopicPartition],
    id: &dyn Fn(&str) -> Option<String>,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<Option<i64>>, Loss> {
    if partitions.is_empty() {
        return Ok(Vec::new());
    }
    let mut asked = TopicPartitionList::new();
    for partition in partitions {
        asked.add_partition(&partition.topic, partition.number);
    }
    let until = Instant::now() + ANSWER;
    // In steps, so that a worker that stops meanwhile does not wait for the coordinator.
    let answer = loop {
        match consumer.committed_offsets(asked.clone(), STEP).and_then(whole) {
            Ok(answer) => break answer,
            // For example, the coordinator has just moved.
            Err(error) if error.rdkafka_error_code().is_some_and(passes) && !stop() && Instant::now() < until => {
                thread::sleep(PAUSE);
            }
            Err(error) => return Err(unanswered(plan, &error)),
        }
    };
    let mut committed = Vec::new();
    for partition in partitions {
        let Some(element) = answer.find_partition(&partition.topic, partition.number) else {
            committed.push(None);
            continue;
        };
        let mut offset = if let Offset::Offset(offset) = element.offset() { Some(offset) } else { None };
        if offset.is_some() && id(&partition.topic).is_some_and(|id| identity::is_of_another(&element, &id)) {
            tracing::warn!(
                topic = %partition.topic,
                partition = partition.number,
                offset,
                "the offset was committed for a topic of this name that was deleted: the new one is consumed from its beginning"
            );
            offset = None;
        }
        committed.push(offset);
    }
    Ok(committed)
}

fn whole(answer: TopicPartitionList) -> KafkaResult<TopicPartitionList> {
    for element in answer.elements() {
        element.error()?;
    }
    Ok(answer)
}

fn unanswered(plan: &Plan, error: &KafkaError) -> Loss {
    let what = format!("where {} begins cannot be found out", plan.place());
    Loss::Broker(what, error.to_string())
}
