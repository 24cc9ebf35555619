//! Checks whether a queue is a quorum queue.
//!
//! AMQP has no request for this: a passive declaration only reports whether a queue exists. So the queue is declared
//! with `x-queue-type: quorum`. If it exists with other properties, the server refuses and names the first one that
//! differs: durability first, then the arguments in an order that the server chooses:
//!
//! > PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'orders' in vhost '/': received none but current
//! > is the value '60000' of type 'long'
//!
//! An argument that only the queue has is parsed from that text and included in the next declaration, until the server
//! accepts it or names the type. (Texts of 3.10.8 and 4.0.5, from `rabbit_misc:assert_args_equivalence`.)

use idem_core::Error;
use lapin::options::QueueDeclareOptions;
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable, ShortString};

use crate::address::Address;
use crate::error::answer;
use crate::limits::{self, Limits};
use crate::raw::Raw;
use crate::request::{self, Expected, Request};

/// More than the number of arguments that RabbitMQ has.
const ROUNDS: usize = 32;

/// A queue to check.
#[derive(Clone, Copy)]
pub(crate) struct Examined<'a> {
    pub(crate) address: &'a Address,
    pub(crate) name: &'a str,
    pub(crate) request: &'a Request,
    pub(crate) limits: Limits,
}

/// A queue that can be consumed.
pub(crate) struct Found {
    pub(crate) arguments: FieldTable,
    /// Whether it did not exist, and was declared.
    pub(crate) is_new: bool,
}

/// Declares the queue if requested, and binds it. Refuses a queue that is not of the expected type. Returns the queue's
/// arguments, so that the next check needs one round only: each refused declaration is a line in the server's log. `known`
/// are those of a queue that this process has seen before; it is not declared again if it is gone.
pub(crate) async fn verify(raw: &mut Raw, queue: Examined<'_>, known: Option<FieldTable>) -> Result<Found, Error> {
    let Examined { address, name, request, limits } = queue;
    let expected = request.expected;
    let check = |arguments: &FieldTable| match request.may_delete {
        true => Ok(()),
        false => limits::check_unprocessed(name, address, arguments),
    };
    check(&request.arguments)?;
    let is_new = !exists(raw, address, name).await?;
    if is_new && known.is_some() {
        return Err(deleted(name, address, expected));
    }
    if is_new && expected != Expected::Declared {
        return Err(absent(name, address));
    }
    if expected == Expected::Unverified {
        limits.check_unseen(name, address)?;
        return Ok(Found { arguments: known.unwrap_or_default(), is_new });
    }
    if expected == Expected::Classic && known.is_none() {
        tracing::warn!(
            queue = name,
            "a classic queue loses its messages with its node, which idem cannot notice: move to a quorum queue"
        );
    }
    // Those of a classic queue may be invalid for a quorum queue.
    let known = known.filter(|_| expected != Expected::Classic).unwrap_or_default();
    match (declare(raw, queue, Some("quorum"), known).await?, expected) {
        (Ok(_), Expected::Classic) => Err(Error::Config(format!(
            "queue `{name}` on {address} is a quorum queue, which keeps more than a classic one: use .queue(\"{name}\")"
        ))),
        (Err(text), Expected::Classic) => {
            check_classic(name, address, &text)?;
            // The server distinguishes a classic queue by default from one by its argument.
            let arguments = match declare(raw, queue, Some("classic"), FieldTable::default()).await? {
                Ok(arguments) => arguments,
                Err(_) => declare(raw, queue, None, FieldTable::default()).await?.unwrap_or_default(),
            };
            check(&arguments).map(|()| Found { arguments, is_new })
        }
        (Err(text), _) => Err(no_quorum_queue(name, address, &text)),
        (Ok(arguments), _) => {
            limits.check(name, address, &arguments)?;
            check(&arguments)?;
            request::bind(raw, address, name, &request.bindings).await?;
            Ok(Found { arguments, is_new })
        }
    }
}

/// Declares a queue of this kind. Returns its arguments, or the server's text if the queue has another type.
async fn declare(
    raw: &mut Raw,
    queue: Examined<'_>,
    queue_type: Option<&'static str>,
    known: FieldTable,
) -> Result<Result<FieldTable, String>, Error> {
    let Examined { address, name, request, limits } = queue;
    let expected = request.expected;
    let failed = |error| Error::broker(format!("cannot read the settings of queue `{name}` on {address}"), error);
    let mut arguments = of_kind(request, queue_type, known);
    if let (Expected::Declared, Some(limit)) = (expected, limits.to_declare()) {
        arguments.insert(limits::ARGUMENT.into(), limit);
    }
    let mut started_anew = false;
    for _ in 0..ROUNDS {
        let Err(error) = raw.declare(name, DURABLE, arguments.clone()).await else {
            return Ok(Ok(arguments));
        };
        let Some((kind, text)) = answer(&error) else { return Err(failed(error)) };
        match kind {
            AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) if is_asked_for(request, text) => {
                return Err(other_value(name, address, text));
            }
            AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) => match parse_refusal(text) {
                Verdict::NoQuorumQueue => return Ok(Err(text.to_owned())),
                // Declare without a limit, so that the answer names the queue's.
                Verdict::Limit => arguments = of_kind(request, queue_type, FieldTable::default()),
                Verdict::Has(argument, value) => {
                    arguments.insert(argument, value);
                }
                // The queue was recreated with other arguments since they were learned.
                Verdict::Unclear if !started_anew => {
                    started_anew = true;
                    arguments = of_kind(request, queue_type, FieldTable::default());
                }
                Verdict::Unclear => break,
            },
            AMQPErrorKind::Soft(AMQPSoftError::RESOURCELOCKED) => return Err(no_quorum_queue(name, address, text)),
            AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => return Err(no_permission(name, address, expected)),
            _ => return Err(failed(error)),
        }
    }
    Err(Error::Config(format!(
        "cannot determine whether queue `{name}` on {address} is a quorum queue, because RabbitMQ does not report \
         all of its arguments: if it is one, use .queue_unverified(\"{name}\")"
    )))
}

/// Returns the arguments of a queue of this kind: the requested and the known ones.
fn of_kind(request: &Request, queue_type: Option<&'static str>, known: FieldTable) -> FieldTable {
    let mut arguments = known;
    for (name, value) in &request.arguments {
        arguments.insert(name.clone(), value.clone());
    }
    if let Some(queue_type) = queue_type {
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(queue_type.into()));
    }
    arguments
}

/// Reports whether the server refuses an argument that was requested.
fn is_asked_for(request: &Request, text: &str) -> bool {
    let argument = text.split_once(" arg '").and_then(|(_, rest)| rest.split_once('\'')).map(|(argument, _)| argument);
    argument.is_some_and(|argument| request.arguments.inner().contains_key(argument))
}

/// Reports whether a queue with these arguments has a single active consumer. No policy can set this.
pub(crate) fn is_single_active(arguments: &FieldTable) -> bool {
    arguments.inner().get("x-single-active-consumer") == Some(&AMQPValue::Boolean(true))
}

const DURABLE: QueueDeclareOptions =
    QueueDeclareOptions { passive: false, durable: true, exclusive: false, auto_delete: false, nowait: false };

async fn exists(raw: &mut Raw, address: &Address, name: &str) -> Result<bool, Error> {
    let passive = QueueDeclareOptions { passive: true, ..DURABLE };
    let Err(error) = raw.declare(name, passive, FieldTable::default()).await else { return Ok(true) };
    match answer(&error) {
        // A classic queue whose node is away is not found either.
        Some((AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND), text)) if text.contains("no queue") => Ok(false),
        Some((AMQPErrorKind::Soft(AMQPSoftError::RESOURCELOCKED), text)) => Err(no_quorum_queue(name, address, text)),
        _ => Err(Error::broker(format!("cannot read the settings of queue `{name}` on {address}"), error)),
    }
}

fn absent(name: &str, address: &Address) -> Error {
    Error::Config(format!(
        "queue `{name}` does not exist on {address}: declare it there with x-queue-type=quorum, or use .declare(\"{name}\")"
    ))
}

fn deleted(name: &str, address: &Address, expected: Expected) -> Error {
    let remedy = match expected {
        Expected::Declared => "restart this worker, which declares it",
        _ => "declare it there again with its bindings",
    };
    Error::Config(format!(
        "queue `{name}` on {address} was deleted since this worker found it: messages that it had are lost, and no new ones reach \
         it. The worker consumes none of its queues until then. Find out why (an operator, an expiry, a server that was reset) \
         and publish again what was lost. It is not declared again by itself: {remedy}"
    ))
}

fn no_quorum_queue(name: &str, address: &Address, text: &str) -> Error {
    Error::Config(format!(
        "queue `{name}` on {address} is not a quorum queue: a classic queue loses its messages with its node, and a stream is \
         never acked. Declare a queue with another name and x-queue-type=quorum (or use .declare), give it the bindings of \
         `{name}`, and move the remaining messages to it; or, for a classic queue whose messages may be lost, use .classic_queue(\"{name}\"). The server \
         says: {text}"
    ))
}

fn other_value(name: &str, address: &Address, text: &str) -> Error {
    Error::Config(format!(
        "queue `{name}` on {address} refuses an argument that .declare(..) requests. The arguments of an existing \
         queue cannot be changed: request the value that it has, or declare a queue with another name, give it the bindings of `{name}`, \
         and move the remaining messages to it. The server says: {text}"
    ))
}

fn no_permission(name: &str, address: &Address, expected: Expected) -> Error {
    let remedy = match expected {
        Expected::Declared => "grant `configure` on it, or declare it as another user and use .queue".to_owned(),
        _ => format!(
            "grant `configure` on it, which that check needs, or if you know that it is a quorum queue use \
             .queue_unverified(\"{name}\")"
        ),
    };
    Error::Config(format!("the user may not declare queue `{name}` on {address}, nor see its type: {remedy}"))
}

/// Refuses any queue but a durable classic queue. `text` is the server's answer to the declaration of a quorum queue
/// with the same name; it names the first property that differs.
fn check_classic(name: &str, address: &Address, text: &str) -> Result<(), Error> {
    let differs = |property: &str| text.contains(&format!(" arg '{property}"));
    if ["durable", "auto_delete", "exclusive"].into_iter().any(differs) {
        return Err(Error::Config(format!(
            "queue `{name}` on {address} does not outlive its server or its consumers, and its messages are lost with it: \
             declare a durable queue with another name, and give it the bindings of `{name}`. The server says: {text}"
        )));
    }
    // A stream has these arguments, which are invalid for the declared quorum queue.
    let current = text.rsplit_once("but current is ").map(|(_, current)| current);
    let is_stream = ["x-max-age", "x-stream-"].into_iter().any(differs);
    if is_stream || current.is_some_and(|current| current.contains("'stream'")) {
        return Err(Error::Config(format!(
            "queue `{name}` on {address} is a stream, which is never acked: bind a quorum queue beside it and consume that. \
             The server says: {text}"
        )));
    }
    // A queue declared without a type is a classic queue.
    let is_classic = current.is_some_and(|current| current.contains("'classic'") || current.starts_with("none"));
    if differs("x-queue-type") && !is_classic {
        return Err(Error::Config(format!(
            "it cannot be found out whether queue `{name}` on {address} is a classic queue, since RabbitMQ cuts its answer off \
             after a name this long: give the queue a shorter name. The server says: {text}"
        )));
    }
    Ok(())
}

/// The reason why the server refused a declaration.
#[derive(Debug, PartialEq)]
enum Verdict {
    NoQuorumQueue,
    /// It does not have the delivery limit that was declared.
    Limit,
    /// It has this argument, which was not declared.
    Has(ShortString, AMQPValue),
    /// None of these.
    Unclear,
}

fn parse_refusal(text: &str) -> Verdict {
    // A quorum queue has only arguments that are valid for it, so an invalid one was learned from another type.
    if text.contains("- invalid arg '") {
        return Verdict::NoQuorumQueue;
    }
    let Some((argument, rest)) =
        text.split_once("- inequivalent arg '").and_then(|(_, argument)| argument.split_once('\''))
    else {
        return Verdict::Unclear;
    };
    // A quorum queue is always durable, and neither exclusive nor auto-delete.
    if matches!(argument, "x-queue-type" | "durable" | "auto_delete" | "exclusive") {
        return Verdict::NoQuorumQueue;
    }
    if argument == limits::ARGUMENT && !rest.contains(": received none but") {
        return Verdict::Limit;
    }
    let learned = rest
        .split_once(": received none but current is the value '")
        .and_then(|(_, value)| value.rsplit_once("' of type '"))
        .and_then(|(value, kind)| typed(value, kind.strip_suffix('\'')?));
    match (ShortString::try_new(argument), learned) {
        (Ok(argument), Some(value)) => Verdict::Has(argument, value),
        _ => Verdict::Unclear,
    }
}

/// Parses a value. The server treats integers of all sizes as equivalent.
fn typed(value: &str, kind: &str) -> Option<AMQPValue> {
    match kind {
        "longstr" => Some(AMQPValue::LongString(value.into())),
        "bool" => value.parse().ok().map(AMQPValue::Boolean),
        _ => value.parse().ok().map(AMQPValue::LongLongInt),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inequivalent(rest: &str) -> Verdict {
        parse_refusal(&format!("PRECONDITION_FAILED - inequivalent arg {rest}"))
    }

    #[test]
    fn another_type_is_not_a_quorum_queue() {
        for rest in [
            "'x-queue-type' for queue 'q' in vhost '/': received the value 'quorum' of type 'longstr' but current is none",
            "'x-queue-type' for queue 'q' in vhost '/': received 'quorum' but current is 'stream'",
            // A long queue name leaves no room for the rest: the text is limited to 255 bytes.
            "'x-queue-type' for queue 'qqqqqqqqq",
            "'durable' for queue 'q' in vhost '/': received 'true' but current is 'false'",
        ] {
            assert_eq!(inequivalent(rest), Verdict::NoQuorumQueue);
        }
    }

    #[test]
    fn an_argument_is_learned_with_its_type() {
        let has = |name: &str, value| Verdict::Has(name.into(), value);
        let current = |value: &str, kind: &str| {
            inequivalent(&format!(
                "'x-a' for queue 'it''s' in vhost '/': received none but current is the value '{value}' of type '{kind}'"
            ))
        };
        assert_eq!(current("dl'x' of", "longstr"), has("x-a", AMQPValue::LongString("dl'x' of".into())));
        assert_eq!(current("", "longstr"), has("x-a", AMQPValue::LongString("".into())));
        assert_eq!(current("-1", "signedint"), has("x-a", AMQPValue::LongLongInt(-1)));
        assert_eq!(current("true", "bool"), has("x-a", AMQPValue::Boolean(true)));
    }

    #[test]
    fn an_unknown_refusal_is_unclear() {
        for rest in [
            "'x-a' for queue 'q' in vhost '/': received 'a' but current is 'b'",
            "'x-a' for queue 'q' in vhost '/': received the value '1' of type 'long' but current is none",
            "'x-a' for queue 'q' in vhost '/': received none but current is the value 'cut o",
            "'x-a' for queue 'q' in vhost '/': received none but current is the value '{a}' of type 'table'",
            "",
        ] {
            assert_eq!(inequivalent(rest), Verdict::Unclear, "{rest}");
        }
        assert_eq!(parse_refusal("INTERNAL_ERROR"), Verdict::Unclear);
    }
}
