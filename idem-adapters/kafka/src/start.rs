//! Determines where a partition starts, by offsets that the brokers are asked for.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaResult;
use rdkafka::{Offset, TopicPartitionList};

use crate::error::{self, Loss, expired, passes};
use crate::identity;
use crate::partition::TopicPartition;
use crate::plan::{Begins, Plan, Start};

/// How long to wait for an answer of the brokers.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);

/// How long to wait for the offsets of all partitions before the group is joined.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The longest wait during a rebalance, while nothing else is served.
const STEP: Duration = Duration::from_secs(2);

/// The pause before an operation is retried after a transient error.
const PAUSE: Duration = Duration::from_millis(50);

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
            return Err(expired(plan));
        }
        Start::Latest if new => found(consumer, plan, &fresh, Offset::End)?,
        Start::Earliest | Start::Latest => Begins::new(),
        Start::Time(time) => {
            let millis = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis());
            found(consumer, plan, &fresh, Offset::Offset(i64::try_from(millis).unwrap_or(i64::MAX)))?
        }
    };
    let given = |partition: &TopicPartition| Some((partition.clone(), *plan.offsets.get(partition)?));
    let given: Begins = fresh.iter().filter_map(given).collect();
    let wrong = out_of_range(consumer, plan, &given, TIMEOUT).map_err(|error| unanswered(plan, error.to_string()))?;
    if let Some(why) = wrong.into_values().next() {
        return Err(Loss::Refused(format!(".start_at(..) cannot be kept: {why}")));
    }
    begins.extend(given);
    Ok(begins)
}

/// Returns where each of these partitions starts: at this offset, or at its end if there is none (no message has the
/// timestamp). A group that joined without knowing it would skip messages there, or deliver all of them.
fn found<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    plan: &Plan,
    partitions: &[TopicPartition],
    which: Offset,
) -> Result<Begins, Loss> {
    let ask =
        |which| offsets(consumer, partitions, which, TIMEOUT).map_err(|error| unanswered(plan, error.to_string()));
    // The end is looked up first, so that messages published between the two are not skipped if none has the timestamp.
    let (ends, found) = (ask(Offset::End)?, ask(which)?);
    let begin = |partition: &TopicPartition| -> Result<_, Loss> {
        let [end, found] = [&ends, &found].map(|of| of.get(partition).copied().flatten());
        let begin = found.or(end).ok_or_else(|| unanswered(plan, format!("there is no answer about {partition}")))?;
        Ok((partition.clone(), begin))
    };
    partitions.iter().map(begin).collect()
}

/// The error texts of those offsets that are outside of their partition's range. Fails if any range is not known now.
pub(crate) fn out_of_range<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    plan: &Plan,
    known: &Begins,
    patience: Duration,
) -> KafkaResult<BTreeMap<TopicPartition, String>> {
    let ask = |which| offsets(consumer, known.keys(), which, patience);
    let (lows, highs) = (ask(Offset::Beginning)?, ask(Offset::End)?);
    let why = |(partition, offset): (&TopicPartition, &i64)| {
        let (low, high) = ((*lows.get(partition)?)?, (*highs.get(partition)?)?);
        let range = format!("the partition has {low} to {high}");
        let why = error::out_of_range(plan, partition, Some(*offset), &range);
        (!(low..=high).contains(offset)).then(|| (partition.clone(), why))
    };
    Ok(known.iter().filter_map(why).collect())
}

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

/// Returns the offsets that the group has committed in these partitions. `id` returns the id of a topic.
pub(crate) fn committed<C: ConsumerContext>(
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
            Err(error) => return Err(unanswered(plan, error.to_string())),
        }
    };
    let mut committed = Vec::new();
    for partition in partitions {
        let found = answer.find_partition(&partition.topic, partition.number);
        let mut offset = found.and_then(|element| element.offset().to_raw()).filter(|offset| *offset >= 0);
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

fn unanswered(plan: &Plan, why: String) -> Loss {
    Loss::Broker(format!("where {} begins cannot be found out", plan.place()), why)
}
