//! The settings that a consumer must have.

use std::time::{Duration, SystemTime};

use async_nats::jetstream::consumer::{self, DeliverPolicy};
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
pub(crate) const ACK_WAIT: Duration = Duration::from_secs(30);

/// The limit of unsettled messages for all workers together: none, because each worker has a limit. With the server's
/// default of 1000, a second worker with `.batch(100)` would get nothing, because each of the two takes up to 3200.
pub(crate) const MAX_ACK_PENDING: i64 = -1;

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
pub(crate) fn filters(filters: &[String]) -> [(&'static str, Value); 2] {
    match filters {
        [] => [("filter_subject", "".into()), ("filter_subjects", json!([]))],
        [one] => [("filter_subject", one.as_str().into()), ("filter_subjects", json!([]))],
        many => [("filter_subject", "".into()), ("filter_subjects", json!(many))],
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
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
        let room = config["max_ack_pending"].as_i64().unwrap();
        assert!(room == -1 || room >= i64::from(u16::MAX) * 8, "{room}");
    }
}
