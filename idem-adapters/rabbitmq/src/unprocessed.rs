//! Arguments by which a queue deletes messages that were never processed.

use idem_core::Error;
use lapin::types::{AMQPValue, FieldTable};

use crate::address::Address;
use crate::limit;

const EXPIRES: &str = "x-expires";
const TTL: &str = "x-message-ttl";

/// Reports whether the server may delete a message that a worker gives back before it is delivered again.
pub(crate) fn deletes_returned(arguments: &FieldTable) -> bool {
    [EXPIRES, TTL].iter().any(|argument| arguments.inner().contains_key(*argument))
}

/// Refuses a queue with these arguments. A policy can set the same limits, and cannot be seen.
pub(crate) fn check(name: &str, address: &Address, arguments: &FieldTable) -> Result<(), Error> {
    let Some((argument, effect)) = found(arguments) else { return Ok(()) };
    let value = arguments.inner().get(argument).map(limit::text).unwrap_or_default();
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
