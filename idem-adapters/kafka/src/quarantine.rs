//! Errors of the client, and partitions that have stalled while the others continue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::{Offset, TopicPartitionList};

use crate::connection::is_unknown;
use crate::error::{self, Loss, is_unreadable, passes};
use crate::member::Member;
use crate::partition::TopicPartition;
use crate::plan::Begins;
use crate::stall::{Cause, Stall};
use crate::start;

/// How long to wait for answers. Nothing else is served meanwhile.
const AGAIN: Duration = Duration::from_secs(2);

/// How long to wait for answers that only affect a text or a metric. Nothing is served meanwhile.
const ANSWER: Duration = Duration::from_secs(1);

/// How long to wait for the ranges of all partitions.
const RANGES: Duration = Duration::from_secs(2);

impl Member {
    /// Ignores errors from which the client recovers by itself. Any other error stops the partition it concerns or, if
    /// it concerns none, ends the subscription, so that no record is skipped.
    pub(crate) fn handle_error(
        &self,
        consumer: &BaseConsumer<Self>,
        error: &KafkaError,
        partition: Option<&TopicPartition>,
    ) -> Result<(), Loss> {
        let heard = self.witness.said();
        let said = if heard.reason.is_empty() { error.to_string() } else { heard.reason };
        let ended = || Loss::Broker(format!("the subscription to {} has ended", self.plan.place()), said.clone());
        if let Some((code, said)) = consumer.client().fatal_error() {
            let remedy = self.plan.protocol.remedy(code);
            return Err(Loss::Broker(format!("the subscription to {} has ended{remedy}", self.plan.place()), said));
        }
        if let KafkaError::MessageConsumptionFatal(_) = error {
            return Err(ended());
        }
        match error.rdkafka_error_code() {
            Some(Code::AllBrokersDown) => {
                let what = format!("no broker of {} can be reached: check that the server runs", self.plan.place());
                self.shared.lose(Loss::Broker(what, said));
                Ok(())
            }
            Some(Code::AutoOffsetReset) if self.out_of_range(consumer, partition) => Ok(()),
            // A refusal without a partition came before that had its own queue; the client asks again. The error does not
            // name the topic, so the topics are looked up.
            Some(code) if is_unknown(code) || (code == Code::TopicAuthorizationFailed && partition.is_none()) => {
                self.shaken.store(true, Ordering::Relaxed);
                Ok(())
            }
            Some(Code::Authentication) if !heard.ended => Ok(()),
            Some(code) if passes(code) => Ok(()),
            Some(Code::GroupAuthorizationFailed) => Err(ended()),
            code => {
                let Some(partition) = partition else { return Err(ended()) };
                // The client would continue after the batch.
                if code.is_some_and(is_unreadable) {
                    self.quarantine(consumer, partition, Cause::Stuck, &format!("it cannot be read: {error}"));
                } else {
                    // A member that left would pass a forbidden topic on to the next one, and that to another.
                    let remedy = match code {
                        Some(Code::TopicAuthorizationFailed) => " (allow the user to read the topic)",
                        _ => "",
                    };
                    let why = format!("a broker refuses to let it be read, and is asked again: {error}{remedy}");
                    self.quarantine(consumer, partition, Cause::Failing, &why);
                }
                Ok(())
            }
        }
    }

    /// Stops receiving from this partition until it is assigned again or, depending on the cause, tried again. Its
    /// offset stays where it is, so that no record is skipped. Records that were already received are still handled, and
    /// the other partitions continue.
    fn quarantine(&self, consumer: &BaseConsumer<Self>, partition: &TopicPartition, cause: Cause, why: &str) {
        let begins = |stall: &mut Stall| stall.begin(cause, Instant::now());
        if !self.shared.lock().assigned.stall(partition).is_some_and(begins) {
            return;
        }
        let mut list = TopicPartitionList::new();
        list.add_partition(&partition.topic, partition.number);
        if let Err(error) = consumer.pause(&list) {
            tracing::debug!(topic = %partition.topic, partition = partition.number, %error, "a partition was not paused");
        }
        tracing::error!(
            topic = %partition.topic,
            partition = partition.number,
            why,
            "a partition is stalled; the others continue"
        );
        self.report_stalled();
    }

    /// Quarantines partitions whose offset is out of range. The client does not always report which partition it is:
    /// then all that receive are looked at.
    ///
    /// Returns `false` if there is none.
    fn out_of_range(&self, consumer: &BaseConsumer<Self>, partition: Option<&TopicPartition>) -> bool {
        let mut places = self.shared.lock().assigned.receiving();
        places.retain(|at, _| partition.is_none_or(|partition| partition == at));
        let known: Begins =
            places.iter().filter_map(|(partition, place)| Some((partition.clone(), (*place)?))).collect();
        let found = start::out_of_range(consumer, &self.plan, &known, RANGES);
        let mut found = found.unwrap_or_else(|error| {
            tracing::warn!(place = self.plan.place(), %error, "the ranges of partitions cannot be looked up now");
            BTreeMap::new()
        });
        if let Some(partition) = partition {
            // Without an offset, the client has looked up the beginning of the partition, and that has failed.
            match places.get(partition) {
                Some(None) => {
                    self.quarantine(consumer, partition, Cause::Failing, "its beginning could not be found out");
                }
                Some(place) => {
                    let why = || error::out_of_range(&self.plan, partition, *place, "so says the broker");
                    found.entry(partition.clone()).or_insert_with(why);
                }
                None => {}
            }
        }
        for (partition, why) in &found {
            self.quarantine(consumer, partition, Cause::Stuck, why);
        }
        partition.is_some() || !found.is_empty()
    }

    /// Checks which partitions have no leader, and whether the topics exist. The client looks for leaders by itself, so
    /// the result about leaders affects only the log and the metric.
    pub(crate) fn check_leaders(&self, consumer: &BaseConsumer<Self>) {
        let ours: Vec<_> = self.shared.lock().assigned.partitions().map(|(partition, _)| partition.clone()).collect();
        // Includes topics without assigned partitions, since a deleted topic has none.
        for topic in self.topics() {
            // If one request gets no answer, the next would take as long.
            let Ok(metadata) = consumer.fetch_metadata(Some(&topic), ANSWER) else { return };
            let Some(found) = metadata.topics().iter().find(|found| found.name() == &*topic) else { continue };
            if found.error().map(Code::from) == Some(Code::UnknownTopicOrPartition) {
                self.shaken.store(true, Ordering::Relaxed);
                continue;
            }
            let without: BTreeSet<i32> =
                found.partitions().iter().filter(|one| one.leader() < 0).map(|one| one.id()).collect();
            for partition in ours.iter().filter(|partition| partition.topic == topic) {
                self.lead(partition, !without.contains(&partition.number));
            }
        }
        self.report_stalled();
    }

    fn lead(&self, partition: &TopicPartition, leads: bool) {
        if !self.shared.lock().assigned.stall(partition).is_some_and(|stall| stall.lead(leads)) {
            return;
        }
        let TopicPartition { topic, number: partition } = partition;
        if leads {
            tracing::info!(%topic, partition, "a partition has a leader again");
        } else {
            tracing::error!(
                %topic,
                partition,
                "a partition has no leader and is stalled until it has one; the others continue: check its brokers"
            );
        }
    }

    /// Tries the partitions again that are due.
    pub(crate) fn retry(&self, consumer: &BaseConsumer<Self>) {
        if self.shared.is_lost() {
            return;
        }
        let failing = self.shared.lock().assigned.due(Instant::now());
        for (partition, place) in &failing {
            let again = go_on(consumer, partition, *place);
            if let Some(stall) = self.shared.lock().assigned.stall(partition) {
                if again.is_ok() { stall.end() } else { stall.postpone(Instant::now()) }
            }
            let TopicPartition { topic, number: partition } = partition;
            match again {
                Ok(()) => {
                    tracing::info!(%topic, partition, offset = place, "a partition that was stalled is tried again")
                }
                Err(error) => tracing::warn!(%topic, partition, %error, "a partition is still stalled"),
            }
        }
        if !failing.is_empty() {
            self.report_stalled();
        }
    }
}

/// Fetches this partition again, from this offset or else from its beginning.
fn go_on(consumer: &BaseConsumer<Member>, partition: &TopicPartition, place: Option<i64>) -> KafkaResult<()> {
    let mut list = TopicPartitionList::new();
    let place = place.map_or(Offset::Beginning, Offset::Offset);
    list.add_partition_offset(&partition.topic, partition.number, place)?;
    for sought in consumer.seek_partitions(list.clone(), AGAIN)?.elements() {
        sought.error()?;
    }
    consumer.resume(&list)
}
