//! The callbacks of the consumer group. All of them run on the thread that polls.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rdkafka::client::OAuthToken;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use crate::error::Loss;
use crate::identity;
use crate::member::Member;
use crate::protocol::GroupProtocol;
use crate::shared::Phase;
use crate::start::{self, Begin};

/// How long what runs may go on when its partition is taken away. Other members wait meanwhile.
const GRACE: Duration = Duration::from_secs(2);

impl Member {
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

    /// Writes down where a partition begins, before anything of it is delivered. If this were decided again after a crash,
    /// the start would skip what had come meanwhile.
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
