//! What the group tells a member. All of it runs on the thread that polls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::client::OAuthToken;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::topic_partition_list::TopicPartitionListElem;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use crate::connection::Witness;
use crate::error::{Loss, made_anew};
use crate::identity;
use crate::partition::TopicPartition;
use crate::plan::Plan;
use crate::protocol::GroupProtocol;
use crate::shared::{Phase, Shared};
use crate::start::{self, Begin};

/// How long what runs may go on when its partition is taken away. Other members wait meanwhile.
const GRACE: Duration = Duration::from_secs(2);

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

    fn serves(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
    }

    fn ids(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, String>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the id of this topic is known.
    pub(crate) fn is_identified(&self, topic: &str) -> bool {
        self.ids().contains_key(topic)
    }

    fn id(&self, topic: &str) -> Option<String> {
        self.ids().get(topic).cloned()
    }

    /// A topic has this id. Another one than before: nothing of what was known of it holds, and no offset of the old
    /// one may be committed for it.
    fn identify(&self, topic: &str, id: &str) {
        if self.plan.wanted.takes(topic) {
            let before = self.ids().insert(topic.into(), id.to_owned());
            if before.is_some_and(|before| before != id) && self.holds(topic) {
                self.shared.end(made_anew(&self.plan.config, topic));
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
            self.shared.end(made_anew(&self.plan.config, topic));
        }
        self.gone().insert(Arc::clone(topic));
        self.clear();
        self.tell_of(topic, 0);
    }

    /// It is back.
    pub(crate) fn remember(&self, topic: &str) {
        self.gone().remove(topic);
    }

    fn clear(&self) {
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

    fn partitions(&self, list: &TopicPartitionList) -> Vec<TopicPartition> {
        let of = |element: &TopicPartitionListElem<'_>| {
            TopicPartition::new(&self.topic(element.topic()), element.partition())
        };
        list.elements().iter().map(of).collect()
    }

    fn assign(&self, consumer: &BaseConsumer<Self>, assigned: &TopicPartitionList) -> Result<(), Loss> {
        let closing = || self.shared.lock().closing;
        let begins = start::begin(consumer, &self.plan, &self.partitions(assigned), &|topic| self.id(topic), &closing)?;
        let mut list = TopicPartitionList::new();
        for Begin { partition, offset, .. } in &begins {
            // At its end, where nothing comes before it is quarantined.
            let offset = if *offset == Offset::Invalid { Offset::End } else { *offset };
            list.add_partition_offset(&partition.topic, partition.number, offset)
                .map_err(|error| self.broken(&error))?;
        }
        consumer.incremental_assign(&list).map_err(|error| self.broken(&error))?;
        self.decide(consumer, &begins)?;
        for Begin { partition, offset, .. } in begins {
            let begin = if let Offset::Offset(offset) = offset { Some(offset) } else { None };
            self.shared.lock().assigned.assign(partition.clone(), begin);
            if offset == Offset::Invalid {
                self.quarantine(consumer, &partition, "where the group begins in it could not be found out");
            }
        }
        self.tell();
        Ok(())
    }

    /// Writes down where a partition begins, before anything of it is delivered. Decided anew after a crash, the start
    /// would skip what had come meanwhile.
    fn decide(&self, consumer: &BaseConsumer<Self>, begins: &[Begin]) -> Result<(), Loss> {
        let decided = begins.iter().filter(|begin| begin.decided);
        let mut any = false;
        for begin in decided {
            let Offset::Offset(offset) = begin.offset else { continue };
            self.store_next(consumer, &begin.partition, offset).map_err(|error| self.broken(&error))?;
            any = true;
        }
        if any {
            consumer.commit_consumer_state(CommitMode::Sync).map_err(|error| self.broken(&error))?;
        }
        Ok(())
    }

    fn revoke(&self, consumer: &BaseConsumer<Self>, revoked: &TopicPartitionList) {
        let partitions = self.partitions(revoked);
        self.shared.lock().assigned.leave(&partitions);
        // They have another owner already, who has begun where the last commit was: what is committed now could only
        // skip what that owner has not finished.
        let lost = consumer.assignment_lost();
        let up = self.shared.lock().phase == Phase::Up;
        if !lost && up {
            self.shared.finish(&partitions, GRACE);
            self.store(consumer);
            self.commit(consumer, CommitMode::Sync);
        }
        tracing::debug!(topic = %self.plan.wanted.text, ?partitions, lost, "partitions were taken away");
        if self.plan.protocol == GroupProtocol::Consumer {
            // It may be all that tells that a topic is gone.
            self.shaken.store(true, Ordering::Relaxed);
        }
        let mut inner = self.shared.lock();
        for partition in &partitions {
            inner.assigned.remove(partition);
        }
        drop(inner);
        self.clear();
        self.tell();
    }

    /// Tells the client the finished prefixes.
    ///
    /// Always by way of the client's store, which refuses a partition that is not ours: a commit of a list of one's own
    /// is not checked, and moves a partition that another member owns
    /// (<https://github.com/apache/kafka/blob/4.1.1/group-coordinator/src/main/java/org/apache/kafka/coordinator/group/classic/ClassicGroup.java>,
    /// validateOffsetCommit).
    pub(crate) fn store(&self, consumer: &BaseConsumer<Self>) {
        let progress = self.shared.lock().assigned.progress();
        for (partition, finished) in progress {
            if let Err(error) = self.store_next(consumer, &partition, finished + 1) {
                tracing::debug!(%partition, %error, "an offset was not stored");
            }
        }
    }

    /// The offset of the next record, with the id of the topic.
    fn store_next(&self, consumer: &BaseConsumer<Self>, partition: &TopicPartition, next: i64) -> KafkaResult<()> {
        let mut list = TopicPartitionList::new();
        let mut place = list.add_partition(&partition.topic, partition.number);
        place.set_offset(Offset::Offset(next))?;
        // Of a topic that was deleted nothing is known any more. Its offsets must not be taken for those of another one that is
        // made in its place.
        let Some(id) = self.id(&partition.topic) else { return Ok(()) };
        place.set_metadata(identity::metadata(&id));
        consumer.store_offsets(&list)
    }

    /// Commits what was stored and is not committed yet, if there is anything.
    pub(crate) fn commit(&self, consumer: &BaseConsumer<Self>, mode: CommitMode) {
        match consumer.commit_consumer_state(mode) {
            Ok(()) => {}
            Err(error) if error.rdkafka_error_code() == Some(Code::NoOffset) => {}
            Err(error) => {
                tracing::debug!(
                    topic = %self.plan.wanted.text, %error, "offsets were not committed; they come again"
                );
            }
        }
    }

    pub(crate) fn broken(&self, error: &KafkaError) -> Loss {
        Loss::Broker(format!("the subscription to {} has ended", self.plan.place()), error.to_string())
    }
}

impl ClientContext for Member {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    /// librdkafka asks again after 10 seconds where there is none.
    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        self.serves();
        let had = self.plan.config.tokens.token();
        if let Err(error) = &had {
            tracing::warn!(topic = %self.plan.wanted.text, error, "there is no new token for Kafka; it is asked for again");
        }
        had.map_err(|error| -> Box<dyn std::error::Error> { error })
    }

    fn log(&self, level: RDKafkaLogLevel, part: &str, text: &str) {
        self.serves();
        if let RDKafkaLogLevel::Debug = level {
            if let Some((topic, id)) = identity::read(text) {
                self.identify(topic, id);
            }
            tracing::trace!(target: "idem_kafka::librdkafka", topic = %self.plan.wanted.text, part, text);
            return;
        }
        // It repeats itself while a broker is away, and what matters comes as an error, too.
        tracing::debug!(target: "idem_kafka::librdkafka", topic = %self.plan.wanted.text, part, text);
    }

    fn stats_raw(&self, _: &[u8]) {
        self.serves();
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.serves();
        self.witness.hears(&error, reason);
    }
}

impl ConsumerContext for Member {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, change: RDKafkaRespErr, partitions: &mut TopicPartitionList) {
        self.serves();
        if change == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            if let Err(loss) = self.assign(consumer, partitions) {
                self.shared.end(loss);
                // The client waits for an answer to each change, also to end.
                let _ = consumer.incremental_assign(&TopicPartitionList::new());
            }
            self.shared.has_joined();
        } else {
            self.revoke(consumer, partitions);
            if let Err(error) = consumer.incremental_unassign(partitions) {
                self.shared.end(self.broken(&error));
                let _ = consumer.unassign();
            }
        }
    }
}
