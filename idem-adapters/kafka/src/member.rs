//! The state of one group member, and the ids of its topics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{describe_gauge, gauge};
use rdkafka::TopicPartitionList;
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::TopicPartitionListElem;

use crate::connection::Witness;
use crate::error::{Loss, recreated};
use crate::partition::TopicPartition;
use crate::plan::Plan;
use crate::shared::Shared;

/// One member of a group.
pub(crate) struct Member {
    pub(crate) plan: Plan,
    pub(crate) shared: Arc<Shared>,
    pub(crate) witness: Witness,
    /// The known topic ids.
    ids: Mutex<BTreeMap<Arc<str>, String>>,
    /// The client has reported that a topic is gone. The topics have to be checked to find out which one.
    pub(crate) shaken: AtomicBool,
}

impl Member {
    pub(crate) fn new(plan: Plan, shared: Arc<Shared>) -> Self {
        Self {
            witness: Witness::new(&plan.config),
            plan,
            shared,
            ids: Mutex::default(),
            shaken: AtomicBool::new(false),
        }
    }

    fn ids(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, String>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the id of this topic is known.
    pub(crate) fn is_identified(&self, topic: &str) -> bool {
        self.ids().contains_key(topic)
    }

    pub(crate) fn id(&self, topic: &str) -> Option<String> {
        self.ids().get(topic).cloned()
    }

    /// Records the id of a topic. If the id has changed, nothing known about the old topic is valid, and none of its
    /// offsets may be committed for the new one.
    pub(crate) fn identify(&self, topic: &str, id: &str) {
        if self.plan.wanted.takes(topic) {
            let before = self.ids().insert(topic.into(), id.to_owned());
            if before.is_some_and(|before| before != id) && self.holds(topic) {
                tracing::error!(
                    topic,
                    "the topic was deleted and recreated: what was not handled of the old one is lost"
                );
                self.shared.end(recreated(&self.plan.config.place, topic));
            }
        }
    }

    /// Whether this member holds offsets of this topic.
    fn holds(&self, topic: &str) -> bool {
        self.shared.lock().assigned.has(topic) || self.plan.begins.keys().any(|partition| &*partition.topic == topic)
    }

    /// Forgets the ids of other topics than these, which exist, unless it holds offsets of one: by its id, a topic that is
    /// created under its name is another one.
    pub(crate) fn forget_others(&self, existing: &BTreeSet<Arc<str>>) {
        let gone: Vec<_> = self.topics().into_iter().filter(|topic| !existing.contains(topic)).collect();
        for topic in gone.iter().filter(|topic| !self.holds(topic)) {
            self.ids().remove(topic);
        }
    }

    /// The topics whose ids are known.
    pub(crate) fn topics(&self) -> Vec<Arc<str>> {
        self.ids().keys().map(Arc::clone).collect()
    }

    /// Returns the name as an `Arc`, shared if the topic's id is known.
    pub(crate) fn topic(&self, name: &str) -> Arc<str> {
        self.ids().get_key_value(name).map_or_else(|| name.into(), |(name, _)| Arc::clone(name))
    }

    pub(crate) fn partitions(&self, list: &TopicPartitionList) -> Vec<TopicPartition> {
        let of = |element: &TopicPartitionListElem<'_>| {
            TopicPartition::new(&self.topic(element.topic()), element.partition())
        };
        list.elements().iter().map(of).collect()
    }

    /// Sets the metric of stalled partitions for each topic.
    pub(crate) fn report_stalled(&self) {
        describe_gauge!(
            "idem_kafka_stalled_partitions",
            "Partitions of this process that are stalled; the log says why"
        );
        let stalled = self.shared.lock().assigned.stalled();
        for topic in self.topics() {
            let labels = [("topic", topic.to_string()), ("group", self.plan.group.clone())];
            let stalled = stalled.get(&topic).copied().unwrap_or_default();
            gauge!("idem_kafka_stalled_partitions", &labels).set(stalled as f64);
        }
    }

    pub(crate) fn broken(&self, error: &KafkaError) -> Loss {
        Loss::Broker(format!("the subscription to {} has ended", self.plan.place()), error.to_string())
    }
}
