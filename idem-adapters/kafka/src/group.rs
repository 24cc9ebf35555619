//! The consumer group: its callbacks, which all run on the polling thread, and the offsets that are committed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rdkafka::client::OAuthToken;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use crate::error::Loss;
use crate::identity;
use crate::member::Member;
use crate::partition::TopicPartition;
use crate::protocol::GroupProtocol;
use crate::shared::Phase;
use crate::start;

/// How long running handlers may continue after their partition is revoked. Other members wait meanwhile.
const GRACE: Duration = Duration::from_secs(2);

impl Member {
    fn assign(&self, consumer: &BaseConsumer<Self>, assigned: &TopicPartitionList) -> Result<(), Loss> {
        let (closing, broken) = (|| self.shared.lock().closing, |error: KafkaError| self.broken(&error));
        let partitions = self.partitions(assigned);
        // Only the group's coordinator is asked, since all members wait meanwhile: an offset out of range is noticed when
        // it is read from.
        let committed = start::committed(consumer, &self.plan, &partitions, &|topic| self.id(topic), &closing)?;
        let (mut list, mut decided) = (TopicPartitionList::new(), TopicPartitionList::new());
        let mut begins = Vec::new();
        for (partition, committed) in partitions.into_iter().zip(committed) {
            let begin = committed.or_else(|| self.plan.begins.get(&partition).copied());
            let offset = begin.map_or(Offset::Beginning, Offset::Offset);
            list.add_partition_offset(&partition.topic, partition.number, offset).map_err(broken)?;
            if let (None, Some(begin)) = (committed, begin) {
                self.list_next(&mut decided, &partition, begin).map_err(broken)?;
            }
            begins.push((partition, begin));
        }
        consumer.incremental_assign(&list).map_err(broken)?;
        // Before any record of these partitions is delivered: if the start were determined again after a crash, it would
        // skip the messages published meanwhile. Not through the client's offset store: what else is stored there may be
        // an offset that the broker refuses, such as one of a topic that is forbidden by now. The partitions belong to
        // this member, since only this thread gives them up.
        if decided.count() > 0 {
            consumer.commit(&decided, CommitMode::Sync).map_err(broken)?;
        }
        for (partition, begin) in begins {
            self.shared.lock().assigned.assign(partition, begin);
        }
        self.report_stalled();
        Ok(())
    }

    fn revoke(&self, consumer: &BaseConsumer<Self>, revoked: &TopicPartitionList) {
        let partitions = self.partitions(revoked);
        self.shared.lock().assigned.leave(&partitions);
        // Lost partitions already have another owner, which started at the last commit. A commit now could only skip
        // records that this owner has not finished.
        let lost = consumer.assignment_lost();
        let up = self.shared.lock().phase == Phase::Up;
        if !lost && up {
            self.shared.finish(&partitions, GRACE);
            self.store(consumer);
            self.commit(consumer, CommitMode::Sync);
        }
        tracing::debug!(topic = %self.plan.wanted.text, ?partitions, lost, "partitions were taken away");
        if self.plan.protocol == GroupProtocol::Consumer {
            // The revocation may be the only sign that a topic was deleted.
            self.shaken.store(true, Ordering::Relaxed);
        }
        self.shared.remove(&partitions);
        self.report_stalled();
    }

    /// Stores the finished prefixes in the client.
    ///
    /// Always uses the client's offset store, which refuses a partition that is not assigned to this member. A commit
    /// of an explicit list is not checked, and moves the offset of a partition that another member owns
    /// (<https://github.com/apache/kafka/blob/4.1.1/group-coordinator/src/main/java/org/apache/kafka/coordinator/group/classic/ClassicGroup.java>,
    /// validateOffsetCommit).
    pub(crate) fn store(&self, consumer: &BaseConsumer<Self>) {
        let (progress, mut list) = (self.shared.lock().assigned.progress(), TopicPartitionList::new());
        let mut next = progress.iter().map(|(partition, finished)| (partition, finished + 1));
        let listed = next.try_for_each(|(partition, next)| self.list_next(&mut list, partition, next));
        // It stores each that it does not refuse.
        if list.count() > 0
            && let Err(error) = listed.and_then(|()| consumer.store_offsets(&list))
        {
            tracing::debug!(topic = %self.plan.wanted.text, %error, "offsets were not stored");
        }
    }

    /// Adds the offset of the next record, with the id of the topic. An offset without it could be mistaken for one of another
    /// topic that is created under its name, so it is left out if the id is not known.
    fn list_next(&self, list: &mut TopicPartitionList, partition: &TopicPartition, next: i64) -> KafkaResult<()> {
        let Some(id) = self.id(&partition.topic) else { return Ok(()) };
        let mut place = list.add_partition(&partition.topic, partition.number);
        place.set_offset(Offset::Offset(next))?;
        place.set_metadata(identity::metadata(&id));
        Ok(())
    }

    /// Commits the offsets that are stored and not committed yet, if any.
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
}

impl ClientContext for Member {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    /// After an error, librdkafka asks again in 10 seconds.
    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        self.witness.serves();
        let had = self.plan.config.tokens.token();
        if let Err(error) = &had {
            tracing::warn!(topic = %self.plan.wanted.text, error, "there is no new token for Kafka; it is asked for again");
        }
        had.map_err(|error| -> Box<dyn std::error::Error> { error })
    }

    fn log(&self, level: RDKafkaLogLevel, part: &str, text: &str) {
        self.witness.serves();
        if let RDKafkaLogLevel::Debug = level {
            if let Some((topic, id)) = identity::read(text) {
                self.identify(topic, id);
            }
            tracing::trace!(target: "idem_kafka::librdkafka", topic = %self.plan.wanted.text, part, text);
            return;
        }
        // librdkafka repeats these lines while a broker is away, and reports everything important as an error as well.
        tracing::debug!(target: "idem_kafka::librdkafka", topic = %self.plan.wanted.text, part, text);
    }

    fn stats_raw(&self, _: &[u8]) {
        self.witness.serves();
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.witness.error(error, reason);
    }
}

impl ConsumerContext for Member {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, change: RDKafkaRespErr, partitions: &mut TopicPartitionList) {
        self.witness.serves();
        if change == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            if let Err(loss) = self.assign(consumer, partitions) {
                self.shared.end(loss);
                // The client waits for a response to every rebalance, even while it closes.
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
