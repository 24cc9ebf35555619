//! Determines where a partition starts.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::{Offset, TopicPartitionList};

use crate::error::{self, Loss, expired, passes};
use crate::identity;
use crate::lookup::offsets;
use crate::partition::TopicPartition;
use crate::plan::{Begins, Plan, Start};

/// How long to wait for an answer of the brokers.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);

/// How long to look for the offsets of all partitions before the group is joined.
const LOOK: Duration = Duration::from_secs(5);

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
        Start::Latest if new => ends(consumer, &fresh, LOOK),
        Start::Earliest | Start::Latest => Begins::new(),
        Start::Time(time) => at_time(consumer, &fresh, time, LOOK),
    };
    let given = |partition: &TopicPartition| Some((partition.clone(), Some(*plan.offsets.get(partition)?)));
    let given: Begins = fresh.iter().filter_map(given).collect();
    if let Some(why) = out_of_range(consumer, plan, &given, LOOK).into_values().next() {
        return Err(Loss::Refused(format!(".start_at(..) cannot be kept: {why}")));
    }
    begins.extend(given);
    for (partition, _) in begins.iter().filter(|(_, begin)| begin.is_none()) {
        tracing::warn!(%partition, "where the group begins in a partition is not known yet");
    }
    Ok(begins)
}

/// Determines the start positions of partitions in which they were not known when the group was joined, as far as the
/// brokers answer now. Messages that were published since then are not skipped, if their timestamps are right.
pub(crate) fn late<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    plan: &Plan,
    partitions: &[TopicPartition],
    patience: Duration,
) -> Vec<Begin> {
    let time = if let Start::Time(time) = plan.start { time } else { plan.since };
    let begin =
        |(partition, begin): (_, Option<i64>)| Some(Begin { partition, offset: Offset::Offset(begin?), decided: true });
    at_time(consumer, partitions, time, patience).into_iter().filter_map(begin).collect()
}

/// Returns the ends of these partitions. The end is `None` if there is no answer.
fn ends<C: ConsumerContext>(consumer: &BaseConsumer<C>, partitions: &[TopicPartition], patience: Duration) -> Begins {
    let [found] = offsets(consumer, partitions, [Offset::End], patience);
    partitions.iter().map(|partition| (partition.clone(), found.get(partition).copied().and_then(at))).collect()
}

/// Returns the offset of the first message with this timestamp or a later one, or else the end, of each partition. It is
/// `None` if there is no answer.
fn at_time<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    partitions: &[TopicPartition],
    time: SystemTime,
    patience: Duration,
) -> Begins {
    let millis = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let millis = Offset::Offset(i64::try_from(millis).unwrap_or(i64::MAX));
    // The end is looked up first, so that messages published between the two are not skipped if none has the timestamp.
    let [ends, found] = offsets(consumer, partitions, [Offset::End, millis], patience);
    let begin = |partition: &TopicPartition| {
        let end = ends.get(partition).copied().and_then(at);
        (partition.clone(), found.get(partition).and_then(|found| at(*found).or(end)))
    };
    partitions.iter().map(begin).collect()
}

fn at(offset: Offset) -> Option<i64> {
    if let Offset::Offset(offset) = offset { Some(offset) } else { None }
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

/// The error texts of those offsets that are outside of their partition's range, as far as the brokers tell it now.
pub(crate) fn out_of_range<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    plan: &Plan,
    places: &Begins,
    patience: Duration,
) -> BTreeMap<TopicPartition, String> {
    let known: Vec<_> = places.iter().filter(|(_, place)| place.is_some()).map(|(at, _)| at.clone()).collect();
    let [lows, highs] = offsets(consumer, &known, [Offset::Beginning, Offset::End], patience);
    let why = |partition: TopicPartition| {
        let offset = places.get(&partition).copied().flatten()?;
        let (low, high) = (at(*lows.get(&partition)?)?, at(*highs.get(&partition)?)?);
        let range = format!("the partition has {low} to {high}");
        let why = error::out_of_range(&plan.config.place, &plan.group, &partition, Some(offset), &range);
        (!(low..=high).contains(&offset)).then_some((partition, why))
    };
    known.into_iter().filter_map(why).collect()
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
        let found = answer.find_partition(&partition.topic, partition.number).map(|element| element.offset());
        let mut offset = found.and_then(at);
        if offset.is_some() && id(&partition.topic).is_some_and(|id| identity::is_of_another(&answer, partition, &id)) {
            tracing::error!(
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
