//! The parameters of one subscription.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use idem_core::{DeliveryOrder, SubscribeOptions};
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use crate::config::Config;
use crate::identity;
use crate::partition::TopicPartition;
use crate::protocol::GroupProtocol;
use crate::wanted::Wanted;

/// Where a group starts in a partition in which it has not committed an offset.
///
/// ```no_run
/// # use std::time::{Duration, SystemTime};
/// # use idem_kafka::{Kafka, Start};
/// # async fn example(kafka: Kafka) -> Result<(), idem_core::Error> {
/// // A new service that needs the messages of the last day. Has no effect once the group has committed.
/// let day = Duration::from_secs(24 * 3600);
/// let orders = kafka.topic("orders").await?.start(Start::Time(SystemTime::now() - day));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// At the oldest message that exists.
    #[default]
    Earliest,
    /// At the messages published after the first member of the group has joined. The position is committed before any
    /// delivery, so that no message published afterwards is skipped, even after a crash. This is meant for a new group:
    /// a partition that is added later starts at its first message, since none of its messages were meant to be
    /// skipped. While the leader of a partition does not answer, a new group does not start.
    ///
    /// A group loses its offsets when it has no members for long (`offsets.retention.minutes`, a week by default), and
    /// would then skip the messages published meanwhile. This start is therefore refused if the group has committed
    /// nothing in any of its topics although the database has claims of the worker or this source has consumed before.
    Latest,
    /// At the first message with this timestamp or a later one or, if there is none, at the messages published from
    /// then on. A partition or a topic that is added later starts at its first message. The position is determined
    /// whenever a member joins, in each partition in which the group has not committed: a group whose offsets have
    /// expired starts there again, and claims detect the messages that were handled. While the leader of such a partition
    /// does not answer, the member does not join.
    Time(SystemTime),
}

/// The start positions in partitions in which the group has not committed, if they differ from the first message.
pub(crate) type Begins = BTreeMap<TopicPartition, i64>;

/// The existing topics, each with its partitions.
pub(crate) type Known = BTreeMap<Arc<str>, Vec<i32>>;

/// The default of [`Topic::window`](crate::Topic::window).
pub(crate) const WINDOW: usize = 256;

/// The parameters of one subscription.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) config: Arc<Config>,
    pub(crate) wanted: Arc<Wanted>,
    pub(crate) group: String,
    pub(crate) member: Option<String>,
    pub(crate) protocol: GroupProtocol,
    pub(crate) start: Start,
    /// The start offsets of single partitions, which override `start`.
    pub(crate) offsets: BTreeMap<TopicPartition, i64>,
    pub(crate) window: usize,
    pub(crate) order: DeliveryOrder,
    pub(crate) max_unsettled: usize,
    /// The topics and partitions that existed at the start of the subscription.
    pub(crate) known: Known,
    /// Whether this consumer has handled messages before.
    pub(crate) has_history: bool,
    pub(crate) begins: Begins,
}

impl Plan {
    /// The topics, the brokers and the group, for error texts.
    pub(crate) fn place(&self) -> String {
        format!("topic `{}` on {} (group `{}`)", self.wanted.text, self.config.place, self.group)
    }

    /// All partitions that existed at the start of the subscription.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = TopicPartition> {
        let of = |(topic, numbers): (&_, &Vec<i32>)| {
            numbers.iter().map(|number| TopicPartition::new(topic, *number)).collect::<Vec<_>>()
        };
        self.known.iter().flat_map(of)
    }

    /// Warns if the windows hold back deliveries that the worker wants: as many as leave none of its tasks without one. With
    /// an order, more may be unsettled than run, so that this is no loss. The default window is nobody's mistake: it makes
    /// batches smaller, which is only logged.
    pub(crate) fn warn_of_small_windows(&self, wanted: usize) {
        let partitions = self.partitions().count().max(1);
        let unsettled = self.window.saturating_mul(partitions);
        if self.order != DeliveryOrder::None || unsettled >= wanted {
            return;
        }
        let (topic, window) = (&self.wanted.text, self.window);
        let enough = wanted.div_ceil(partitions);
        let text = format!(
            "the worker wants {wanted} deliveries in flight, and {partitions} partitions with a window of {window} give it at most \
             {unsettled}: set .window({enough}) in all workers of the group, or lower .prefetch(..), .concurrency(..) or \
             .batch(..)"
        );
        match window {
            WINDOW => tracing::info!(%topic, window, partitions, wanted, "{text}"),
            _ => tracing::warn!(%topic, window, partitions, wanted, "{text}"),
        }
    }

    /// Whether a subscription created from this plan also serves these options.
    pub(crate) fn serves(&self, group: &str, options: &SubscribeOptions) -> bool {
        self.group == group && self.max_unsettled == usize::from(options.max_unsettled) && self.order == options.order
    }

    /// The settings of the consumer. The user cannot override them.
    pub(crate) fn client(&self) -> ClientConfig {
        let mut client = self.config.client.clone();
        client
            .set("group.id", &self.group)
            .set("enable.auto.commit", "false")
            // Otherwise librdkafka would commit records that were only received. `enable.auto.commit` does not prevent
            // that.
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("isolation.level", "read_committed");
        // Adds the context that logs topic ids to the user's value, if there is one.
        let debug = [client.get("debug").unwrap_or_default(), identity::LOG].join(",");
        client.set("debug", debug.trim_start_matches(',')).set_log_level(RDKafkaLogLevel::Debug);
        if let Some(member) = &self.member {
            client.set("group.instance.id", member);
        }
        self.protocol.set(&mut client, self.member.is_some());
        client
    }
}
