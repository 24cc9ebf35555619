//! The offsets that a member commits.

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::{Offset, TopicPartitionList};

use crate::identity;
use crate::member::Member;
use crate::partition::TopicPartition;

impl Member {
    /// Tells the client the finished prefixes.
    ///
    /// Always by way of the client's store, which refuses a partition that is not ours: a commit of an explicit list
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
    pub(crate) fn store_next(
        &self,
        consumer: &BaseConsumer<Self>,
        partition: &TopicPartition,
        next: i64,
    ) -> KafkaResult<()> {
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
}
