//! The settings that a consumer must have, and how an existing one differs from them.

use std::fmt;
use std::time::{Duration, SystemTime};

use async_nats::jetstream::consumer::{self, AckPolicy, DeliverPolicy};
use idem_core::{DeliveryOrder, SubscribeOptions};
use serde_json::{Value, json};

/// Where a new consumer begins. It does not affect an existing consumer.
///
/// ```no_run
/// # use std::time::{Duration, SystemTime};
/// # use idem_nats::{Nats, Start};
/// # async fn example(nats: Nats) -> Result<(), idem_core::Error> {
/// // A new service that needs the messages of the last day.
/// let day = Duration::from_secs(24 * 3600);
/// let orders = nats.stream("ORDERS").await?.start(Start::Time(SystemTime::now() - day));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// With the oldest message in the stream. This is the default.
    #[default]
    All,
    /// With the first message published after the consumer was created. Refused if the consumer does not exist and the
    /// database has claims of the worker: the consumer was then deleted, and messages published since would be skipped.
    New,
    /// With the message that has this sequence number.
    Sequence(u64),
    /// With the first message published at this time or later.
    Time(SystemTime),
}

/// The consumer settings that a user can choose.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wishes {
    pub(crate) filters: Vec<String>,
    pub(crate) ack_wait: Option<Duration>,
    pub(crate) start: Start,
    pub(crate) reconcile: bool,
}

/// A consumer as it exists on the server.
pub(crate) struct Found {
    pub(crate) info: consumer::Info,
    /// The server's complete response, including settings that async-nats does not know.
    pub(crate) raw: Value,
}

/// The server's default, <https://docs.nats.io/nats-concepts/jetstream/consumers#ackwait>.
const ACK_WAIT: Duration = Duration::from_secs(30);

/// The limit of unsettled messages for all workers together: none, because each worker has a limit. With the server's
/// default of 1000, a second worker with `.batch(100)` would get nothing, because each of the two takes up to 3200.
const MAX_ACK_PENDING: i64 = -1;

/// The shortest ack wait. A shorter lease could not be kept, because it is extended after a third of it, over a
/// network.
pub(crate) const SHORTEST: Duration = Duration::from_secs(1);

/// Returns the configuration of a new consumer that keeps idem's guarantees.
pub(crate) fn config(name: &str, wishes: &Wishes, options: &SubscribeOptions, since: Option<SystemTime>) -> Value {
    let start = match (wishes.start, since) {
        (Start::New, Some(since)) => Start::Time(since),
        (start, _) => start,
    };
    let mut config = json!({
        "durable_name": name,
        "name": name,
        "ack_policy": "explicit",
        "ack_wait": nanos(wishes.ack_wait.unwrap_or(ACK_WAIT)),
        "max_deliver": -1,
        "max_ack_pending": match options.order {
            DeliveryOrder::Queue => 1,
            _ => MAX_ACK_PENDING,
        },
        "replay_policy": "instant",
    });
    let policy = match start {
        Start::All => DeliverPolicy::All,
        Start::New => DeliverPolicy::New,
        Start::Sequence(start_sequence) => DeliverPolicy::ByStartSequence { start_sequence },
        Start::Time(time) => DeliverPolicy::ByStartTime { start_time: time.into() },
    };
    if let (Ok(Value::Object(policy)), Some(config)) = (serde_json::to_value(policy), config.as_object_mut()) {
        config.extend(policy);
    }
    for (name, value) in filters(&wishes.filters) {
        config[name] = value;
    }
    config
}

/// Returns how many deliveries a worker may have unsettled. Those that would only wait in it are not taken from a consumer
/// with a limit for all workers together: they could leave nothing for another one.
pub(crate) fn max_unsettled(config: &consumer::Config, options: &SubscribeOptions) -> u16 {
    if config.max_ack_pending > 0 { options.least_unsettled.min(options.max_unsettled) } else { options.max_unsettled }
}

/// Returns the filter settings. A single filter uses the setting that servers older than 2.10 read.
fn filters(filters: &[String]) -> [(&'static str, Value); 2] {
    match filters {
        [] => [("filter_subject", "".into()), ("filter_subjects", json!([]))],
        [one] => [("filter_subject", one.as_str().into()), ("filter_subjects", json!([]))],
        many => [("filter_subject", "".into()), ("filter_subjects", json!(many))],
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A setting with the wrong value.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) setting: &'static str,
    pub(crate) is: String,
    pub(crate) must: String,
    /// The settings that correct it. Empty if the server can no longer change it.
    pub(crate) set: Vec<(&'static str, Value)>,
}

impl Difference {
    pub(crate) fn can_be_set(&self) -> bool {
        !self.set.is_empty()
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, is, must, .. } = self;
        let cannot = if self.can_be_set() { "" } else { " (cannot be changed)" };
        write!(f, "{setting}: is {is}, must be {must}{cannot}")
    }
}

/// Returns all settings with which messages would be lost, held back, or delivered while they are being handled.
pub(crate) fn differences(found: &Found, wishes: &Wishes, options: &SubscribeOptions) -> Vec<Difference> {
    let config = &found.info.config;
    let mut different = Vec::new();
    let mut check = |fine: bool, setting, is: String, must: &str, set: &[(&'static str, Value)]| {
        if !fine {
            different.push(Difference { setting, is, must: must.to_owned(), set: set.to_vec() });
        }
    };
    let subject = config.deliver_subject.as_deref();
    check(subject.is_none(), "deliver_subject", quoted(subject), "none (a pull consumer)", &[]);
    let explicit = config.ack_policy == AckPolicy::Explicit;
    check(explicit, "ack_policy", format!("{:?}", config.ack_policy).to_lowercase(), "explicit", &[]);
    let groups = found.raw["config"]["priority_groups"].as_array().filter(|groups| !groups.is_empty());
    check(groups.is_none(), "priority_groups", format!("{}", json!(groups)), "none", &[]);

    let unlimited = config.max_deliver <= 0;
    check(unlimited, "max_deliver", config.max_deliver.to_string(), "-1 (unlimited)", &[("max_deliver", json!(-1))]);
    let backoff = format!("{:?}", config.backoff);
    check(config.backoff.is_empty(), "backoff", backoff, "none (it overrides ack_wait)", &[("backoff", json!([]))]);
    let (fine, wait, must) = match wishes.ack_wait {
        Some(wait) => (config.ack_wait == wait, wait, format!("{wait:?}")),
        None => (config.ack_wait >= SHORTEST, ACK_WAIT, format!("{SHORTEST:?} or more, best {ACK_WAIT:?}")),
    };
    check(fine, "ack_wait", format!("{:?}", config.ack_wait), &must, &[("ack_wait", json!(nanos(wait)))]);
    let (pending, needed) = (config.max_ack_pending, i64::from(max_unsettled(config, options)));
    let capacity = format!("{needed} or more (what .prefetch(..), .concurrency(..) and .batch(..) let be in flight)");
    let (fine, must, set) = match options.order {
        DeliveryOrder::Queue => (pending == 1, "1 (for DeliveryOrder::Queue)".to_owned(), 1),
        _ => (pending < 0 || pending >= needed, capacity, MAX_ACK_PENDING),
    };
    check(fine, "max_ack_pending", pending.to_string(), &must, &[("max_ack_pending", json!(set))]);
    let bodies = !config.headers_only;
    check(bodies, "headers_only", "true".to_owned(), "false", &[("headers_only", json!(false))]);
    let lasting = config.inactive_threshold.is_zero();
    let threshold = format!("{:?}", config.inactive_threshold);
    let must = "none (its place in the stream would be lost)";
    check(lasting, "inactive_threshold", threshold, must, &[("inactive_threshold", json!(0))]);
    let (is, must) = (sorted(config.filter_subject.as_str(), &config.filter_subjects), sorted("", &wishes.filters));
    check(is == must, "filter", listed(&is), &listed(&must), &filters(&wishes.filters));
    different
}

fn sorted<'a>(one: &'a str, many: &'a [String]) -> Vec<&'a str> {
    let mut all: Vec<_> = many.iter().map(String::as_str).chain((!one.is_empty()).then_some(one)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn listed(filters: &[&str]) -> String {
    if filters.is_empty() { "none".to_owned() } else { format!("`{}`", filters.join("`, `")) }
}

fn quoted(text: Option<&str>) -> String {
    text.map_or_else(|| "none".to_owned(), |text| format!("`{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_waits_in_a_worker_if_the_consumer_has_a_limit() {
        let mut options = SubscribeOptions::new("billing", 20);
        options.least_unsettled = 16;
        let of = |max_ack_pending| max_unsettled(&consumer::Config { max_ack_pending, ..Default::default() }, &options);
        assert_eq!([-1, 16, 1000].map(of), [20, 16, 16]);
        options.least_unsettled = 30;
        assert_eq!(max_unsettled(&consumer::Config { max_ack_pending: 1000, ..Default::default() }, &options), 20);
    }

    #[test]
    fn a_new_consumer_has_room_for_several_workers_with_the_largest_batches() {
        let config = config("billing", &Wishes::default(), &SubscribeOptions::new("billing", u16::MAX), None);
        let capacity = config["max_ack_pending"].as_i64().unwrap();
        assert!(capacity == -1 || capacity >= i64::from(u16::MAX) * 8, "{capacity}");
    }
}
