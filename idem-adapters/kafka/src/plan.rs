//! What one subscription is to be.

use std::collections::BTreeMap;
use std::sync::Arc;

use idem_core::{Horizon, Ordering, Terms};
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use crate::config::Config;
use crate::identity;
use crate::partition::TopicPartition;
use crate::protocol::GroupProtocol;
use crate::start::{Begins, Start};
use crate::wanted::Wanted;

/// The topics that there are, each with its partitions.
pub(crate) type Known = BTreeMap<Arc<str>, Vec<i32>>;

/// One subscription: which topics, in which group, and how.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) config: Arc<Config>,
    pub(crate) wanted: Arc<Wanted>,
    pub(crate) group: String,
    pub(crate) member: Option<String>,
    pub(crate) protocol: GroupProtocol,
    pub(crate) start: Start,
    /// Where single partitions begin, whatever the start.
    pub(crate) offsets: BTreeMap<TopicPartition, i64>,
    pub(crate) window: usize,
    pub(crate) ordering: Ordering,
    pub(crate) in_flight: usize,
    /// What there was when it began.
    pub(crate) known: Known,
    /// How far back that reaches.
    pub(crate) horizon: Horizon,
    /// This consumer has handled messages before.
    pub(crate) has_history: bool,
    pub(crate) begins: Begins,
}

impl Plan {
    /// The topics, the group and where they are, for errors.
    pub(crate) fn place(&self) -> String {
        format!("topic `{}` on {} (group `{}`)", self.wanted.text, self.config.place, self.group)
    }

    /// All partitions that there were.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = TopicPartition> {
        let of = |(topic, numbers): (&_, &Vec<i32>)| {
            numbers.iter().map(|number| TopicPartition::new(topic, *number)).collect::<Vec<_>>()
        };
        self.known.iter().flat_map(of)
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
            .set("isolation.level", "read_committed");
        // The user's, if there is one, and what tells the topic's id.
        let debug = [client.get("debug").unwrap_or_default(), identity::LOG].join(",");
        client.set("debug", debug.trim_start_matches(',')).set_log_level(RDKafkaLogLevel::Debug);
        if let Some(member) = &self.member {
            client.set("group.instance.id", member);
        }
        self.protocol.set(&mut client, self.member.is_some());
        client
    }
}
