//! The plan of one subscription.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use idem_core::{DeliveryOrder, ReplayWindow, SubscribeOptions};
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use crate::config::Config;
use crate::identity;
use crate::partition::TopicPartition;
use crate::protocol::GroupProtocol;
use crate::wanted::Wanted;

/// Where a group begins in a partition in which it has committed nothing yet.
///
/// ```no_run
/// # use std::time::{Duration, SystemTime};
/// # use idem_kafka::{Kafka, Start};
/// # async fn example(kafka: Kafka) -> Result<(), idem_core::Error> {
/// // A new service that is to know of the last day. Once it has committed, this says nothing more.
/// let day = Duration::from_secs(24 * 3600);
/// let orders = kafka.topic("orders").await?.start(Start::Time(SystemTime::now() - day));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// At the oldest message that is there.
    #[default]
    Earliest,
    /// With what is published after the first member of the group has come. It is written down before anything is
    /// delivered, so that nothing published from then on is skipped, whatever crashes. It is for a group that is new: a
    /// partition that is added later begins at its first message, since nobody meant to skip those.
    ///
    /// A group loses its offsets when nobody has consumed for long (`offsets.retention.minutes`, a week by default), and
    /// would then skip what came meanwhile. So it is refused where the database has claims of the worker, or this source
    /// has consumed before, and the group has committed nothing in any of its topics.
    Latest,
    /// At the first message whose timestamp is this or later, or where there is none, with what comes. A partition or a topic
    /// that is added later begins at its first message. It is looked for in each partition in which the group has committed
    /// nothing, whenever a member comes: a group whose offsets have expired begins there again, and claims tell what was
    /// handled.
    Time(SystemTime),
}

/// Where partitions begin in which the group has committed nothing, if that is elsewhere than at their first message. `None`:
/// that could not be found out.
pub(crate) type Begins = BTreeMap<TopicPartition, Option<i64>>;

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
    pub(crate) order: DeliveryOrder,
    pub(crate) max_unsettled: usize,
    /// The topics and partitions that existed when it began.
    pub(crate) known: Known,
    /// How far back that reaches.
    pub(crate) replay_window: ReplayWindow,
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

    /// Whether a subscription that was made by this plan serves such options.
    pub(crate) fn serves(&self, group: &str, options: &SubscribeOptions) -> bool {
        self.group == group && self.max_unsettled == usize::from(options.max_unsettled) && self.order == options.order
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
