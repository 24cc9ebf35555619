//! What the group tells a member. All of it runs on the thread that polls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use crate::connection::Witness;
use crate::error::{Loss, made_anew};
use crate::identity;
use crate::plan::Plan;
use crate::shared::{Phase, Shared};
use crate::start::{self, Begin};

/// How long what runs may go on when its partition is taken away. Other members wait meanwhile.
const GRACE: Duration = Duration::from_secs(2);

/// One member of a group.
pub(crate) struct Member {
    pub(crate) plan: Plan,
    pub(crate) shared: Arc<Shared>,
    pub(crate) witness: Witness,
    /// The id of the topic, as far as it is known.
    id: Mutex<Option<String>>,
    /// How many events were served.
    served: AtomicU64,
}

impl Member {
    pub(crate) fn new(plan: Plan, shared: Arc<Shared>) -> Self {
        Self { plan, shared, witness: Witness::default(), id: Mutex::new(None), served: AtomicU64::new(0) }
    }

    /// Rises with each event that a poll has served, which is all that tells that there may be another one.
    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    fn serves(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the topic's id is known.
    pub(crate) fn is_identified(&self) -> bool {
        self.id().is_some()
    }

    fn id(&self) -> Option<String> {
        self.id.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The topic has this id. Another one than before: nothing of what was known of it holds, and no offset of the old
    /// one may be committed for it.
    fn identify(&self, id: &str) {
        let before = self.id.lock().unwrap_or_else(PoisonError::into_inner).replace(id.to_owned());
        if before.is_some_and(|before| before != id) {
            self.shared.end(made_anew(&self.plan.config, &self.plan.topic));
        }
    }

    fn assign(&self, consumer: &BaseConsumer<Self>, assigned: &TopicPartitionList) -> Result<(), Loss> {
        let closing = || self.shared.lock().closing;
        let begins = start::begin(consumer, &self.plan, assigned, self.id().as_deref(), &closing)?;
        let mut list = TopicPartitionList::new();
        for begin in &begins {
            // At its end, where nothing comes before it is quarantined.
            let offset = if begin.offset == Offset::Invalid { Offset::End } else { begin.offset };
            list.add_partition_offset(&self.plan.topic, begin.partition, offset)
                .map_err(|error| self.broken(&error))?;
        }
        consumer.incremental_assign(&list).map_err(|error| self.broken(&error))?;
        self.decide(consumer, &begins)?;
        for Begin { partition, offset, .. } in begins {
            let begin = if let Offset::Offset(offset) = offset { Some(offset) } else { None };
            self.shared.lock().assigned.assign(partition, begin);
            if offset == Offset::Invalid {
                self.quarantine(consumer, partition, "where it ends, and so the group begins, could not be found out");
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
            self.store_next(consumer, begin.partition, offset).map_err(|error| self.broken(&error))?;
            any = true;
        }
        if any {
            consumer.commit_consumer_state(CommitMode::Sync).map_err(|error| self.broken(&error))?;
        }
        Ok(())
    }

    fn revoke(&self, consumer: &BaseConsumer<Self>, revoked: &TopicPartitionList) {
        let partitions: Vec<i32> = revoked.elements().iter().map(|element| element.partition()).collect();
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
        tracing::debug!(topic = %self.plan.topic, ?partitions, lost, "partitions were taken away");
        let mut inner = self.shared.lock();
        for partition in partitions {
            inner.assigned.remove(partition);
        }
        drop(inner);
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
            if let Err(error) = self.store_next(consumer, partition, finished + 1) {
                tracing::debug!(topic = %self.plan.topic, partition, %error, "an offset was not stored");
            }
        }
    }

    /// The offset of the next record, with the id of the topic.
    fn store_next(&self, consumer: &BaseConsumer<Self>, partition: i32, next: i64) -> KafkaResult<()> {
        let mut list = TopicPartitionList::new();
        let mut place = list.add_partition(&self.plan.topic, partition);
        place.set_offset(Offset::Offset(next))?;
        if let Some(id) = self.id() {
            place.set_metadata(identity::metadata(&id));
        }
        consumer.store_offsets(&list)
    }

    /// Commits what was stored and is not committed yet, if there is anything.
    pub(crate) fn commit(&self, consumer: &BaseConsumer<Self>, mode: CommitMode) {
        match consumer.commit_consumer_state(mode) {
            Ok(()) => {}
            Err(error) if error.rdkafka_error_code() == Some(Code::NoOffset) => {}
            Err(error) => {
                tracing::debug!(topic = %self.plan.topic, %error, "offsets were not committed; they come again")
            }
        }
    }

    pub(crate) fn broken(&self, error: &KafkaError) -> Loss {
        Loss::Broker(format!("the subscription to {} has ended", self.plan.place()), error.to_string())
    }
}

impl ClientContext for Member {
    fn log(&self, level: RDKafkaLogLevel, part: &str, text: &str) {
        self.serves();
        if let RDKafkaLogLevel::Debug = level {
            if let Some(id) = identity::read(text, &self.plan.topic) {
                self.identify(id);
            }
            tracing::trace!(target: "idem_kafka::librdkafka", topic = %self.plan.topic, part, text);
            return;
        }
        // It repeats itself while a broker is away, and what matters comes as an error, too.
        tracing::debug!(target: "idem_kafka::librdkafka", topic = %self.plan.topic, part, text);
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
