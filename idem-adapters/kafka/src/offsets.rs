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

    /// Stores the offset of the next record, with the id of the topic.
    pub(crate) fn store_next(
        &self,
        consumer: &BaseConsumer<Self>,
        partition: &TopicPartition,
        next: i64,
    ) -> KafkaResult<()> {
        let mut list = TopicPartitionList::new();
        let mut place = list.add_partition(&partition.topic, partition.number);
        place.set_offset(Offset::Offset(next))?;
        // The id of a deleted topic is not known any more. The offset must not be stored, because it could be mistaken
        // for an offset of another topic created under its name.
        let Some(id) = self.id(&partition.topic) else { return Ok(()) };
        place.set_metadata(identity::metadata(&id));
        consumer.store_offsets(&list)
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
