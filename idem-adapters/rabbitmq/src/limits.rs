//! Arguments by which a queue drops messages that were never processed. Policies can set the same limits, and cannot be seen.
//!
//! Since RabbitMQ 4.0, a quorum queue without its own limit has a limit of 20 returns. After that it drops the message
//! without a log line, or dead-letters it. The end of a connection counts as a return of everything prefetched. On 4.0
//! and later, -1 means no limit. Before 4.0 there is no limit unless one is set, and -1 drops a message at its first
//! return.

use idem_core::Error;
use lapin::types::{AMQPValue, FieldTable};

use crate::address::Address;
use crate::config::Config;
use crate::raw::Raw;

pub(crate) const ARGUMENT: &str = "x-delivery-limit";

/// The server's version, and whether a policy lifts the limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The major version of the server.
    pub(crate) major: Option<u32>,
    /// Whether the caller stated that a policy lifts the limit, or that the queue has none.
    pub(crate) by_policy: bool,
}

impl Limits {
    /// Reads the version from this connection: the server may have been upgraded since the last one. `unlimited` is what the
    /// caller states of the queue.
    pub(crate) fn of(raw: &Raw, config: &Config, unlimited: bool) -> Self {
        Self { major: raw.major(), by_policy: config.limit_by_policy || unlimited }
    }

    /// Reports whether a queue without the argument has a limit.
    fn is_limited(self) -> bool {
        self.major.is_none_or(|major| major >= 4)
    }

    /// Returns the argument for a queue to declare.
    pub(crate) fn to_declare(self) -> Option<AMQPValue> {
        (self.is_limited() && !self.by_policy).then_some(AMQPValue::LongLongInt(-1))
    }

    /// Refuses a queue whose arguments cannot be seen, unless the caller stated that it drops no messages.
    pub(crate) fn check_unseen(self, name: &str, address: &Address) -> Result<(), Error> {
        if !self.is_limited() || self.by_policy {
            return Ok(());
        }
        Err(Error::Config(format!(
            "the delivery limit of queue `{name}` on {address} cannot be read without the permission `configure`, and RabbitMQ 4 \
             drops each message of a queue without x-delivery-limit=-1 at its 21st return, which lost connections count as: \
             declare the queue with that argument, or lift the limit by a policy (rabbitmqctl set_policy no-limit '^{name}$' \
             '{{\"delivery-limit\": 1000000000}}' --apply-to quorum_queues), and say so by \
             .queue_unverified(\"{name}\").without_delivery_limit()"
        )))
    }

    /// Refuses a queue whose arguments make it drop messages.
    pub(crate) fn check(self, name: &str, address: &Address, arguments: &FieldTable) -> Result<(), Error> {
        match arguments.inner().get(ARGUMENT) {
            Some(limit) => match integer(limit) {
                Some(limit) if limit < 0 && self.is_limited() => Ok(()),
                _ => Err(limited(name, address, &text(limit))),
            },
            None if self.is_limited() && !self.by_policy => Err(Error::Config(format!(
                "queue `{name}` on {address} has no delivery limit of its own, and RabbitMQ 4 then drops each message at its \
                 21st return, which lost connections count as: lift the limit by a policy (rabbitmqctl set_policy no-limit \
                 '^{name}$' '{{\"delivery-limit\": 1000000000}}' --apply-to quorum_queues) and say so by \
                 .delivery_limit_by_policy(), or declare a queue with x-delivery-limit=-1"
            ))),
            None => Ok(()),
        }
    }
}

/// Returns the error for a queue whose limit is an argument, which no policy lifts.
pub(crate) fn limited(name: &str, address: &Address, limit: &str) -> Error {
    Error::Config(format!(
        "queue `{name}` on {address} has x-delivery-limit={limit}, so that RabbitMQ drops messages that never ran: lost \
         connections count as deliveries. A queue's arguments cannot be changed, and no policy lifts their limit: declare a \
         queue with another name without it (from RabbitMQ 4.0 on with x-delivery-limit=-1), give it the bindings of \
         `{name}`, and move the remaining messages to it"
    ))
}

fn integer(value: &AMQPValue) -> Option<i64> {
    match value {
        AMQPValue::LongLongInt(limit) => Some(*limit),
        AMQPValue::LongInt(limit) => Some((*limit).into()),
        _ => None,
    }
}

fn text(value: &AMQPValue) -> String {
    integer(value).map_or_else(|| "something else than a number".to_owned(), |limit| limit.to_string())
}

const EXPIRES: &str = "x-expires";
const TTL: &str = "x-message-ttl";

/// Reports whether the server may delete a message that a worker releases before it is delivered again.
pub(crate) fn deletes_returned(arguments: &FieldTable) -> bool {
    [EXPIRES, TTL].iter().any(|argument| arguments.inner().contains_key(*argument))
}

/// Refuses a queue with these arguments.
pub(crate) fn check_unprocessed(name: &str, address: &Address, arguments: &FieldTable) -> Result<(), Error> {
    let Some((argument, effect)) = found(arguments) else { return Ok(()) };
    let value = arguments.inner().get(argument).map(text).unwrap_or_default();
    Err(Error::Config(format!(
        "queue `{name}` on {address} has {argument}={value}: RabbitMQ {effect}, also if it was never processed, as in an outage \
         of the database (or moves it, if the queue has a dead-letter exchange). A queue's arguments cannot be changed: declare a queue with another name and without that, give it \
         the bindings of `{name}`, and move the remaining messages to it; or, if such messages may be lost, accept that by \
         .may_delete_unprocessed()"
    )))
}

fn found(arguments: &FieldTable) -> Option<(&'static str, &'static str)> {
    let refuses = matches!(
        arguments.inner().get("x-overflow"),
        Some(AMQPValue::LongString(overflow)) if overflow.as_bytes().starts_with(b"reject-publish")
    );
    let drops =
        "drops the oldest message when the queue is full (with x-overflow=reject-publish it would refuse the newest)";
    [
        (EXPIRES, "deletes the queue with its messages when it has had no consumer for so many milliseconds", true),
        (TTL, "drops each message that has waited for so many milliseconds", true),
        ("x-max-length", drops, !refuses),
        ("x-max-length-bytes", drops, !refuses),
    ]
    .into_iter()
    .find(|(argument, _, deletes)| *deletes && arguments.inner().contains_key(*argument))
    .map(|(argument, effect, _)| (argument, effect))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RabbitMq;

    /// Reports whether a queue with this limit is accepted.
    fn is_taken(major: Option<u32>, by_policy: bool, limit: Option<i64>) -> bool {
        let mut arguments = FieldTable::default();
        if let Some(limit) = limit {
            arguments.insert(ARGUMENT.into(), AMQPValue::LongLongInt(limit));
        }
        let address = RabbitMq::options("amqp://h").config().unwrap().address;
        Limits { major, by_policy }.check("orders", &address, &arguments).is_ok()
    }

    #[test]
    fn a_limit_of_0_or_more_is_refused_everywhere() {
        for (major, by_policy) in [(Some(3), false), (Some(3), true), (Some(4), false), (Some(4), true), (None, false)]
        {
            for limit in [0, 5, i64::MAX] {
                assert!(!is_taken(major, by_policy, Some(limit)), "{major:?} {by_policy} {limit}");
            }
        }
    }

    #[test]
    fn a_negative_limit_is_none_from_4_0_on_and_drops_messages_before() {
        for by_policy in [false, true] {
            assert!(!is_taken(Some(3), by_policy, Some(-1)));
            assert!(is_taken(Some(4), by_policy, Some(-1)) && is_taken(Some(5), by_policy, Some(-1)));
        }
    }

    #[test]
    fn a_queue_that_would_get_a_limit_is_declared_without_one() {
        let declared = |major, by_policy| Limits { major, by_policy }.to_declare();
        let none = Some(AMQPValue::LongLongInt(-1));
        assert_eq!((declared(Some(4), false), declared(None, false)), (none.clone(), none));
        assert_eq!((declared(Some(3), false), declared(Some(4), true)), (None, None));
    }

    #[test]
    fn a_limit_that_cannot_be_seen_is_taken_on_trust_from_4_0_on() {
        let address = RabbitMq::options("amqp://h").config().unwrap().address;
        let is_taken = |major, by_policy| Limits { major, by_policy }.check_unseen("orders", &address).is_ok();
        assert!(is_taken(Some(3), false) && is_taken(Some(4), true) && is_taken(None, true));
        assert!(!is_taken(Some(4), false) && !is_taken(None, false));
    }

    #[test]
    fn no_limit_at_all_needs_a_policy_from_4_0_on() {
        assert!(is_taken(Some(3), false, None) && is_taken(Some(3), true, None));
        assert!(!is_taken(Some(4), false, None) && is_taken(Some(4), true, None));
        assert!(!is_taken(None, false, None), "of a server that does not say what it is");
    }
}
