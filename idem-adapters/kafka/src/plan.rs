//! What one subscription is to be.

use std::collections::BTreeMap;
use std::sync::Arc;

use idem_core::{Ordering, Terms};
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use crate::config::Config;
use crate::identity;
use crate::start::Start;

/// One subscription: which topic, in which group, and how.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) config: Arc<Config>,
    pub(crate) topic: Arc<str>,
    pub(crate) group: String,
    pub(crate) member: Option<String>,
    pub(crate) start: Start,
    pub(crate) window: usize,
    pub(crate) ordering: Ordering,
    pub(crate) in_flight: usize,
    /// The partitions that there were when it began.
    pub(crate) known: Vec<i32>,
    /// This consumer has handled messages before.
    pub(crate) has_history: bool,
    /// Where the partitions ended then, if the group had committed nothing and begins there.
    pub(crate) ends: Option<BTreeMap<i32, i64>>,
}

impl Plan {
    /// The topic, the group and where they are, for errors.
    pub(crate) fn place(&self) -> String {
        format!("topic `{}` on {} (group `{}`)", self.topic, self.config.place, self.group)
    }

    /// Whether a partition without a committed offset begins at its end.
    pub(crate) fn skips(&self, partition: i32) -> bool {
        self.start == Start::Latest && self.ends.is_some() && self.known.contains(&partition)
    }

    /// Where this partition ended, if that is known.
    pub(crate) fn end(&self, partition: i32) -> Option<i64> {
        self.ends.as_ref()?.get(&partition).copied()
    }

    /// Whether a subscription that was made by this plan serves such terms.
    pub(crate) fn serves(&self, group: &str, terms: &Terms) -> bool {
        self.group == group && self.in_flight == usize::from(terms.in_flight) && self.ordering == terms.ordering
    }

    /// The settings of the consumer. None of these can be the user's.
    pub(crate) fn client(&self) -> ClientConfig {
        let mut client = self.config.client.clone();
        client
            .set("group.id", &self.group)
            .set("enable.auto.commit", "false")
            // Without this, what was only received counts as done: it is not part of the setting above.
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("isolation.level", "read_committed");
        // The user's, if there is one, and what tells the topic's id.
        let debug = [client.get("debug").unwrap_or_default(), identity::LOG].join(",");
        client.set("debug", debug.trim_start_matches(',')).set_log_level(RDKafkaLogLevel::Debug);
        match &self.member {
            Some(member) => drop(client.set("group.instance.id", member)),
            None => session(&mut client),
        }
        client
    }
}

/// For how long the group waits for a member that is gone, unless the user has said so: after a crash before others have
/// its partitions, and after an outage of the brokers that took longer, since the client comes back as another member
/// (librdkafka 2.12, rd_kafka_cgrp_session_timeout_check). Its default of 45 seconds stopped a group for so long after the
/// brokers were back. The heartbeats are sent by a thread of librdkafka's, so that a slow handler misses none.
fn session(client: &mut ClientConfig) {
    if client.get("session.timeout.ms").is_none() {
        client.set("session.timeout.ms", "8000");
        if client.get("heartbeat.interval.ms").is_none() {
            client.set("heartbeat.interval.ms", "2000");
        }
    }
}
