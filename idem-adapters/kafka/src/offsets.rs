//! Commits the offsets of a member.

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::{Offset, TopicPartitionList};

use crate::identity;
use crate::member::Member;
use crate::partition::TopicPartition;

impl Member {
    /// Stores the finished prefixes in the client.
    ///
    /// Always uses the client's offset store, which refuses a partition that is not assigned to this member. A commit
    /// of an explicit list is not checked, and moves the offset of a partition that another member owns
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

    /// Stores the offset of the next record.
    fn store_next(&self, consumer: &BaseConsumer<Self>, partition: &TopicPartition, next: i64) -> KafkaResult<()> {
        let mut list = TopicPartitionList::new();
        self.list_next(&mut list, partition, next)?;
        if list.count() == 0 { Ok(()) } else { consumer.store_offsets(&list) }
    }

    /// Adds the offset of the next record, with the id of the topic. An offset without it could be mistaken for one of another
    /// topic that is created under its name, so it is left out if the id is not known.
    pub(crate) fn list_next(
        &self,
        list: &mut TopicPartitionList,
        partition: &TopicPartition,
        next: i64,
    ) -> KafkaResult<()> {
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
