//! What the group tells a member. All of it runs on the thread that polls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::statistics::Statistics;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use crate::connection::Witness;
use crate::error::Loss;
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
    /// A commit has failed, and is to be tried again.
    pub(crate) uncommitted: AtomicBool,
}

impl Member {
    fn assign(&self, consumer: &BaseConsumer<Self>, assigned: &TopicPartitionList) -> Result<(), Loss> {
        let begins = start::begin(consumer, &self.plan, assigned)?;
        let mut list = TopicPartitionList::new();
        for begin in &begins {
            list.add_partition_offset(&self.plan.topic, begin.partition, begin.offset).map_err(|error| self.broken(&error))?;
        }
        consumer.incremental_assign(&list).map_err(|error| self.broken(&error))?;
        self.decide(consumer, &begins)?;
        // Whatever it was in an assignment of before.
        consumer.resume(&list).map_err(|error| self.broken(&error))?;
        let mut inner = self.shared.lock();
        for Begin { partition, offset, .. } in begins {
            let begin = if let Offset::Offset(offset) = offset { Some(offset) } else { None };
            inner.assigned.assign(partition, begin);
        }
        Ok(())
    }

    /// Writes down where a partition begins, before anything of it is delivered. Decided anew after a crash, the start
    /// would skip what had come meanwhile.
    fn decide(&self, consumer: &BaseConsumer<Self>, begins: &[Begin]) -> Result<(), Loss> {
        let decided = begins.iter().filter(|begin| begin.decided);
        let mut any = false;
        for begin in decided {
            let Offset::Offset(offset) = begin.offset else { continue };
            // What is given is the last offset that is finished, and one more is stored.
            let stored = consumer.store_offset(&self.plan.topic, begin.partition, offset - 1);
            stored.map_err(|error| self.broken(&error))?;
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
            self.shared.settle(&partitions, GRACE);
            if self.store(consumer) {
                self.commit(consumer, CommitMode::Sync);
            }
        }
        tracing::debug!(topic = %self.plan.topic, ?partitions, lost, "partitions were taken away");
        let mut inner = self.shared.lock();
        for partition in partitions {
            inner.assigned.remove(partition);
        }
    }

    /// Tells the client the finished prefixes. `true`: something is to be committed.
    ///
    /// Always by way of the client's store, which refuses a partition that is not ours: a commit of a list of one's own
    /// is not checked, and moves a partition that another member owns
    /// (<https://github.com/apache/kafka/blob/4.1.1/group-coordinator/src/main/java/org/apache/kafka/coordinator/group/classic/ClassicGroup.java>,
    /// validateOffsetCommit).
    pub(crate) fn store(&self, consumer: &BaseConsumer<Self>) -> bool {
        let mut any = false;
        let progress = self.shared.lock().assigned.progress();
        for (partition, finished) in progress {
            match consumer.store_offset(&self.plan.topic, partition, finished) {
                Ok(()) => any = true,
                Err(error) => tracing::debug!(topic = %self.plan.topic, partition, %error, "an offset was not stored"),
            }
        }
        any
    }

    pub(crate) fn commit(&self, consumer: &BaseConsumer<Self>, mode: CommitMode) {
        if let Err(error) = consumer.commit_consumer_state(mode) {
            self.committed(&Err(error));
        }
    }

    fn committed(&self, result: &KafkaResult<()>) {
        let Err(error) = result else { return };
        // There was nothing new: another commit had taken it along.
        if error.rdkafka_error_code() == Some(Code::NoOffset) {
            return;
        }
        self.uncommitted.store(true, Ordering::Relaxed);
        tracing::debug!(topic = %self.plan.topic, %error, "offsets were not committed; they are tried again");
    }

    pub(crate) fn broken(&self, error: &KafkaError) -> Loss {
        Loss::Broker(format!("the subscription to {} has ended", self.plan.place()), error.to_string())
    }
}

impl ClientContext for Member {
    fn log(&self, _: RDKafkaLogLevel, part: &str, text: &str) {
        // It repeats itself while a broker is away, and what matters comes as an error, too.
        tracing::debug!(target: "idem_kafka::librdkafka", topic = %self.plan.topic, part, text);
    }

    fn stats(&self, _: Statistics) {}

    fn error(&self, error: KafkaError, reason: &str) {
        self.witness.hears(&error, reason);
    }
}

impl ConsumerContext for Member {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, change: RDKafkaRespErr, partitions: &mut TopicPartitionList) {
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

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        self.committed(&result);
    }
}
