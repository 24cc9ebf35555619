//! One member of a group, and what it knows of its topics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    /// The ids of the topics, as far as they are known.
    ids: Mutex<BTreeMap<Arc<str>, String>>,
    /// The topics that were deleted, and of which something is ours still.
    gone: Mutex<BTreeSet<Arc<str>>>,
    /// How many events were served.
    served: AtomicU64,
    /// A topic is said to be gone: it has to be looked which one it is.
    pub(crate) shaken: AtomicBool,
}

impl Member {
    pub(crate) fn new(plan: Plan, shared: Arc<Shared>) -> Self {
        Self {
            witness: Witness::new(&plan.config),
            plan,
            shared,
            ids: Mutex::default(),
            gone: Mutex::default(),
            served: AtomicU64::new(0),
            shaken: AtomicBool::new(false),
        }
    }

    /// Rises with each event that a poll has served, which is all that tells that there may be another one.
    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    pub(crate) fn serves(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
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

    /// A topic has this id. Another one than before: nothing of what was known of it holds, and no offset of the old
    /// one may be committed for it.
    pub(crate) fn identify(&self, topic: &str, id: &str) {
        if self.plan.wanted.takes(topic) {
            let before = self.ids().insert(topic.into(), id.to_owned());
            if before.is_some_and(|before| before != id) && self.holds(topic) {
                self.shared.end(recreated(&self.plan.config.place, topic));
            }
        }
    }

    /// Whether offsets of this topic are kept here.
    fn holds(&self, topic: &str) -> bool {
        self.shared.lock().assigned.has(topic) || self.plan.begins.keys().any(|partition| &*partition.topic == topic)
    }

    /// A topic was deleted. One that is made later in its place is another one, as soon as nothing of this one is ours. Where
    /// the group was to begin in it holds for it only.
    pub(crate) fn forget(&self, topic: &Arc<str>) {
        if self.plan.begins.keys().any(|partition| partition.topic == *topic) {
            self.shared.end(recreated(&self.plan.config.place, topic));
        }
        self.gone().insert(Arc::clone(topic));
        self.clear();
        self.tell_of(topic, 0);
    }

    /// It is back.
    pub(crate) fn remember(&self, topic: &str) {
        self.gone().remove(topic);
    }

    pub(crate) fn clear(&self) {
        let shared = self.shared.lock();
        let (mut gone, mut ids) = (self.gone(), self.ids());
        gone.retain(|topic| {
            let held = shared.assigned.has(topic);
            if !held {
                ids.remove(topic);
            }
            held
        });
    }

    fn gone(&self) -> MutexGuard<'_, BTreeSet<Arc<str>>> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The topics whose ids are known.
    pub(crate) fn topics(&self) -> Vec<Arc<str>> {
        self.ids().keys().map(Arc::clone).collect()
    }

    /// The name, as it is kept here.
    pub(crate) fn topic(&self, name: &str) -> Arc<str> {
        self.ids().get_key_value(name).map_or_else(|| name.into(), |(name, _)| Arc::clone(name))
    }

    pub(crate) fn partitions(&self, list: &TopicPartitionList) -> Vec<TopicPartition> {
        let of = |element: &TopicPartitionListElem<'_>| {
            TopicPartition::new(&self.topic(element.topic()), element.partition())
        };
        list.elements().iter().map(of).collect()
    }

    /// How many of the partitions that are ours stand still, as a metric of each topic.
    pub(crate) fn tell(&self) {
        let standing = self.shared.lock().assigned.standing();
        for topic in self.topics() {
            self.tell_of(&topic, standing.get(&topic).copied().unwrap_or_default());
        }
    }

    pub(crate) fn tell_of(&self, topic: &str, standing: usize) {
        let labels = [("topic", topic.to_owned()), ("group", self.plan.group.clone())];
        describe_gauge!(
            "idem_kafka_standing_partitions",
            "Partitions of this process that stand still; the log says why"
        );
        gauge!("idem_kafka_standing_partitions", &labels).set(standing as f64);
    }

    pub(crate) fn broken(&self, error: &KafkaError) -> Loss {
        Loss::Broker(format!("the subscription to {} has ended", self.plan.place()), error.to_string())
    }
}
