//! Partitions that have stalled while the others continue.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode as Code;

use crate::assigned::Cause;
use crate::member::Member;
use crate::partition::TopicPartition;
use crate::start;

/// How long to wait for an answer that only affects a text or a metric. Nothing is served meanwhile.
const ANSWER: Duration = Duration::from_secs(1);

impl Member {
    /// Stops receiving from this partition until it is assigned again. Its offset stays where it is, so that no record
    /// is skipped. Records that were already received are still handled, and the other partitions continue.
    pub(crate) fn quarantine(&self, consumer: &BaseConsumer<Self>, partition: &TopicPartition, why: &str) {
        if !self.shared.lock().assigned.stand(partition, Some(Cause::Stuck)) {
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

    /// Quarantines partitions whose offset is out of range. The client does not always report which partition it is.
    ///
    /// Returns `false` if there is none.
    pub(crate) fn out_of_range(&self, consumer: &BaseConsumer<Self>, partition: Option<&TopicPartition>) -> bool {
        if let Some(partition) = partition {
            let place = self.shared.lock().assigned.place(partition);
            let why = start::out_of_range(consumer, &self.plan, partition, place, ANSWER);
            self.quarantine(consumer, partition, &why.unwrap_or_else(|| start::passed(&self.plan, partition, place)));
            return true;
        }
        let mut any = false;
        for partition in self.ours() {
            let place = self.shared.lock().assigned.place(&partition);
            if let Some(why) = start::out_of_range(consumer, &self.plan, &partition, place, ANSWER) {
                self.quarantine(consumer, &partition, &why);
                any = true;
            }
        }
        any
    }

    fn ours(&self) -> Vec<TopicPartition> {
        self.shared.lock().assigned.partitions().map(|(partition, _)| partition.clone()).collect()
    }

    /// Checks which partitions have no leader, and whether the topics exist. The client looks for leaders by itself, so
    /// the result about leaders affects only the log and the metric.
    pub(crate) fn look_for_leaders(&self, consumer: &BaseConsumer<Self>) {
        let ours = self.ours();
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
                let cause = without.contains(&partition.number).then_some(Cause::NoLeader);
                self.stand(partition, cause);
            }
        }
        self.tell();
    }

    fn stand(&self, partition: &TopicPartition, cause: Option<Cause>) {
        if !self.shared.lock().assigned.stand(partition, cause) {
            return;
        }
        let TopicPartition { topic, number: partition } = partition;
        match cause {
            Some(_) => tracing::error!(
                %topic,
                partition,
                "a partition has no leader and is stalled until it has one; the others continue: check its brokers"
            ),
            None => tracing::info!(%topic, partition, "a partition has a leader again"),
        }
    }
}
