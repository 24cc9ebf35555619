//! Partitions that stand still while the others go on.

use std::collections::BTreeSet;
use std::time::Duration;

use metrics::gauge;
use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::group::Member;
use crate::start;

/// Why a partition stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// No broker leads it. The client goes on by itself once one does.
    NoLeader,
    /// What is there cannot be read from where the group stands. Only a person, and a new assignment, can help.
    Stuck,
}

/// How long an answer is waited for that only a text or a metric depends on. Nothing is served meanwhile.
const ANSWER: Duration = Duration::from_secs(1);

impl Member {
    /// Nothing more is received of this partition in its assignment, and its offset is not moved: nothing is skipped. What
    /// was received of it goes on, and so do the other partitions.
    pub(crate) fn quarantine(&self, consumer: &BaseConsumer<Self>, partition: i32, why: &str) {
        if !self.shared.lock().assigned.stand(partition, Some(Cause::Stuck)) {
            return;
        }
        let mut list = TopicPartitionList::new();
        list.add_partition(&self.plan.topic, partition);
        if let Err(error) = consumer.pause(&list) {
            tracing::debug!(topic = %self.plan.topic, partition, %error, "a partition was not paused");
        }
        tracing::error!(topic = %self.plan.topic, partition, why, "a partition stands still; the others go on");
        self.tell();
    }

    /// Quarantines a partition whose offset is out of range. The client does not always say which one it is.
    ///
    /// `false`: there is none such.
    pub(crate) fn out_of_range(&self, consumer: &BaseConsumer<Self>, partition: Option<i32>) -> bool {
        if let Some(partition) = partition {
            let place = self.shared.lock().assigned.place(partition);
            let why = start::out_of_range(consumer, &self.plan, partition, place, ANSWER);
            self.quarantine(consumer, partition, &why.unwrap_or_else(|| start::passed(&self.plan, partition, place)));
            return true;
        }
        let ours: Vec<i32> = self.shared.lock().assigned.partitions().map(|(partition, _)| partition).collect();
        let mut any = false;
        for partition in ours {
            let place = self.shared.lock().assigned.place(partition);
            if let Some(why) = start::out_of_range(consumer, &self.plan, partition, place, ANSWER) {
                self.quarantine(consumer, partition, &why);
                any = true;
            }
        }
        any
    }

    /// Looks which partitions have no leader. Nothing depends on the answer: the client goes on looking for leaders itself.
    pub(crate) fn look_for_leaders(&self, consumer: &BaseConsumer<Self>) {
        let Ok(metadata) = consumer.fetch_metadata(Some(&self.plan.topic), ANSWER) else { return };
        let topic = metadata.topics().iter().find(|topic| topic.name() == &*self.plan.topic);
        let partitions = topic.map(|topic| topic.partitions()).unwrap_or_default();
        let without: BTreeSet<i32> = partitions.iter().filter(|one| one.leader() < 0).map(|one| one.id()).collect();
        let ours: Vec<i32> = self.shared.lock().assigned.partitions().map(|(partition, _)| partition).collect();
        for partition in ours {
            let cause = without.contains(&partition).then_some(Cause::NoLeader);
            if !self.shared.lock().assigned.stand(partition, cause) {
                continue;
            }
            match cause {
                Some(_) => tracing::error!(
                    topic = %self.plan.topic,
                    partition,
                    "a partition has no leader and stands still until it has one; the others go on: see to its brokers"
                ),
                None => tracing::info!(topic = %self.plan.topic, partition, "a partition has a leader again"),
            }
        }
        self.tell();
    }

    /// How many of the partitions that are ours stand still, as a metric.
    pub(crate) fn tell(&self) {
        let standing = self.shared.lock().assigned.standing();
        let labels = [("topic", self.plan.topic.to_string()), ("group", self.plan.group.clone())];
        gauge!("idem_kafka_standing_partitions", &labels).set(standing as f64);
    }
}
