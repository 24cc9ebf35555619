//! The callbacks of the consumer group. They all run on the polling thread.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rdkafka::client::OAuthToken;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use crate::error::Loss;
use crate::identity;
use crate::member::Member;
use crate::protocol::GroupProtocol;
use crate::shared::Phase;
use crate::start::{self, Begin};

/// How long running handlers may continue after their partition is revoked. Other members wait meanwhile.
const GRACE: Duration = Duration::from_secs(2);

impl Member {
    fn assign(&self, consumer: &BaseConsumer<Self>, assigned: &TopicPartitionList) -> Result<(), Loss> {
        let (closing, broken) = (|| self.shared.lock().closing, |error: KafkaError| self.broken(&error));
        let begins = start::begin(consumer, &self.plan, &self.partitions(assigned), &|topic| self.id(topic), &closing)?;
        let mut list = TopicPartitionList::new();
        for Begin { partition, offset, .. } in &begins {
            let offset = offset.map_or(Offset::Beginning, Offset::Offset);
            list.add_partition_offset(&partition.topic, partition.number, offset).map_err(broken)?;
        }
        consumer.incremental_assign(&list).map_err(broken)?;
        self.decide(consumer, &begins).map_err(broken)?;
        for Begin { partition, offset, .. } in begins {
            self.shared.lock().assigned.assign(partition, offset);
        }
        self.tell();
        Ok(())
    }

    /// Commits the start positions of partitions before any of their records is delivered. If the start were determined
    /// again after a crash, it would skip the messages published meanwhile.
    ///
    /// The positions are committed as a list, and not through the client's offset store: what else is stored there may be
    /// an offset that the broker refuses, such as one of a topic that is forbidden by now. The partitions belong to this
    /// member, since only this thread gives them up.
    fn decide(&self, consumer: &BaseConsumer<Self>, begins: &[Begin]) -> KafkaResult<()> {
        let mut list = TopicPartitionList::new();
        for begin in begins.iter().filter(|begin| begin.decided) {
            if let Some(offset) = begin.offset {
                self.list_next(&mut list, &begin.partition, offset)?;
            }
        }
        if list.count() == 0 { Ok(()) } else { consumer.commit(&list, CommitMode::Sync) }
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
        self.tell();
    }
}

impl ClientContext for Member {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    /// After an error, librdkafka asks again in 10 seconds.
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
        // librdkafka repeats these lines while a broker is away, and reports everything important as an error as well.
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
