//! Partitions that have stalled while the others continue, and those that are tried again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::{Offset, TopicPartitionList};

use crate::member::Member;
use crate::partition::TopicPartition;
use crate::plan::Begins;
use crate::stall::{Cause, Stall};
use crate::{error, start};

/// How long to wait for answers. Nothing else is served meanwhile.
const AGAIN: Duration = Duration::from_secs(2);

/// How long to wait for answers that only affect a text or a metric. Nothing is served meanwhile.
const ANSWER: Duration = Duration::from_secs(1);

/// How long to wait for the ranges of all partitions.
const RANGES: Duration = Duration::from_secs(2);

impl Member {
    /// Stops receiving from this partition until it is assigned again or, depending on the cause, tried again. Its
    /// offset stays where it is, so that no record is skipped. Records that were already received are still handled, and
    /// the other partitions continue.
    pub(crate) fn quarantine(
        &self,
        consumer: &BaseConsumer<Self>,
        partition: &TopicPartition,
        cause: Cause,
        why: &str,
    ) {
        let begins = |stall: &mut Stall| stall.begin(cause, Instant::now());
        if !self.shared.lock().assigned.stall(partition).is_some_and(begins) {
            return;
        }
        let mut list = TopicPartitionList::new();
        list.add_partition(&partition.topic, partition.number);
        if let Err(error) = consumer.pause(&list) {
            tracing::debug!(topic = %partition.topic, partition = partition.number, %error, "a partition was not paused");
        }
        tracing::error!(
            topic = %partition.topic,
            partition = partition.number,
            why,
            "a partition is stalled; the others continue"
        );
        self.tell();
    }

    /// Quarantines partitions whose offset is out of range. The client does not always report which partition it is:
    /// then all that receive are looked at.
    ///
    /// Returns `false` if there is none.
    pub(crate) fn out_of_range(&self, consumer: &BaseConsumer<Self>, partition: Option<&TopicPartition>) -> bool {
        let mut places = self.shared.lock().assigned.receiving();
        places.retain(|at, _| partition.is_none_or(|partition| partition == at));
        let known: Begins =
            places.iter().filter_map(|(partition, place)| Some((partition.clone(), (*place)?))).collect();
        let found = start::out_of_range(consumer, &self.plan, &known, RANGES);
        let mut found = found.unwrap_or_else(|error| {
            tracing::warn!(place = self.plan.place(), %error, "the ranges of partitions cannot be looked up now");
            BTreeMap::new()
        });
        if let Some(partition) = partition {
            // Without an offset, the client has looked up the beginning of the partition, and that has failed.
            match places.get(partition) {
                Some(None) => {
                    self.quarantine(consumer, partition, Cause::Failing, "its beginning could not be found out");
                }
                Some(place) => {
                    let why = || error::out_of_range(&self.plan, partition, *place, "so says the broker");
                    found.entry(partition.clone()).or_insert_with(why);
                }
                None => {}
            }
        }
        for (partition, why) in &found {
            self.quarantine(consumer, partition, Cause::Stuck, why);
        }
        partition.is_some() || !found.is_empty()
    }

    /// Checks which partitions have no leader, and whether the topics exist. The client looks for leaders by itself, so
    /// the result about leaders affects only the log and the metric.
    pub(crate) fn look_for_leaders(&self, consumer: &BaseConsumer<Self>) {
        let ours: Vec<_> = self.shared.lock().assigned.partitions().map(|(partition, _)| partition.clone()).collect();
        // Includes topics without assigned partitions, since a deleted topic has none.
        for topic in self.topics() {
            // If one request gets no answer, the next would take as long.
            let Ok(metadata) = consumer.fetch_metadata(Some(&topic), ANSWER) else { return };
            let Some(found) = metadata.topics().iter().find(|found| found.name() == &*topic) else { continue };
            if found.error().map(Code::from) == Some(Code::UnknownTopicOrPartition) {
                self.shaken.store(true, Ordering::Relaxed);
                continue;
            }
            let without: BTreeSet<i32> =
                found.partitions().iter().filter(|one| one.leader() < 0).map(|one| one.id()).collect();
            for partition in ours.iter().filter(|partition| partition.topic == topic) {
                self.lead(partition, !without.contains(&partition.number));
            }
        }
        self.tell();
    }

    fn lead(&self, partition: &TopicPartition, leads: bool) {
        if !self.shared.lock().assigned.stall(partition).is_some_and(|stall| stall.lead(leads)) {
            return;
        }
        let TopicPartition { topic, number: partition } = partition;
        if leads {
            tracing::info!(%topic, partition, "a partition has a leader again");
        } else {
            tracing::error!(
                %topic,
                partition,
                "a partition has no leader and is stalled until it has one; the others continue: check its brokers"
            );
        }
    }

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
    for sought in consumer.seek_partitions(list.clone(), AGAIN)?.elements() {
        sought.error()?;
    }
    consumer.resume(&list)
}
