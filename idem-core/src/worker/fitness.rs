//! Checks before the start that a worker's handlers are compatible with each other and with its source, and that their external
//! calls can be made.

use std::collections::HashMap;
use std::time::Duration;

use crate::external::{AT_MOST_ONCE, CallLimits};
use crate::registry::Facts;
use crate::routes::RouteBy;
use crate::runtime::Settings;
use crate::{Error, Source, subject};

/// Checks the handlers of a worker together, and then each by itself: that it can run, that its key can be computed, and that its
/// external call can be made and repeated. Otherwise every message would become a dead letter.
pub(super) fn check(handlers: &[&Facts], source: &impl Source, settings: &Settings) -> Result<(), Error> {
    distinct(handlers)?;
    apart(handlers, settings)?;
    routing(handlers, source, settings)?;
    handlers.iter().try_for_each(|handler| match flaw(handler, source, settings) {
        None => Ok(()),
        Some(flaw) => Err(Error::Config(format!("the handler {:?} {flaw}", handler.name))),
    })
}

/// Returns what is wrong with a handler.
fn flaw(handler: &Facts, source: &impl Source, settings: &Settings) -> Option<String> {
    let (name, takes_deliveries) = (handler.name, !handler.limits.is_local_only);
    let pattern = handler.event.filter(|_| settings.route_by == RouteBy::Subject);
    let subjects = pattern.and_then(|pattern| {
        let flaw = subject::flaw(pattern)?;
        Some(format!("takes the subjects {pattern:?}, which is not a pattern of subjects: {flaw}"))
    });
    let lacks = |one: &str, many: &str| {
        format!(
            "takes the {one} of the message as its key, and {} ({}) has no {many}: take the message id, a header or a field of the \
             message as the key",
            source.name(),
            source.system()
        )
    };
    let (positions, partition_keys) = (lacks("position", "positions"), lacks("partition key", "partition keys"));
    let is_odd = |name: &&str| name.is_empty() || name.len() > 200 || name.contains('\0');
    let flaws: [(bool, &str); 8] = [
        (is_odd(&name), "needs a name of 1 to 200 bytes without NUL: it is part of every claim"),
        // The empty name stands for no handler, and its row would be renamed.
        (
            handler.formerly.iter().any(is_odd),
            "has a former name that no handler can have had: remove it from `FORMERLY`",
        ),
        (
            handler.limits.timeout.is_some_and(|timeout| timeout.is_zero()),
            "has a timeout of zero: give its `HandlerOptions::timeout(..)` a longer time, or leave it out for the worker's",
        ),
        (
            handler.is_natural && handler.takes_batch && handler.stages,
            "is natural, takes a batch and stages messages: those of a batch get random ids, so a copy of a message that runs \
             again would publish others. Let it take one message at a time, or remove `natural`",
        ),
        (
            takes_deliveries && handler.needs_cloud_event && !settings.cloud_events,
            "takes the id of a CloudEvent as its key, but the worker does not read CloudEvents: add `.cloud_events()`",
        ),
        (takes_deliveries && handler.needs_position && !source.has_positions(), &positions),
        (takes_deliveries && handler.needs_partition_key && !source.has_partition_keys(), &partition_keys),
        (
            handler.needs_call && handler.external.is_none(),
            "takes the key of an external call, and makes none: name the call, `#[idempotent(.., call = ..)]`",
        ),
    ];
    let found = first(&flaws).map(str::to_owned);
    found.or(subjects).or_else(|| call_flaw(handler, handler.external.as_ref()?))
}

/// Returns the first flaw that is there.
fn first<'a>(flaws: &[(bool, &'a str)]) -> Option<&'a str> {
    flaws.iter().find(|(is_there, _)| *is_there).map(|(_, flaw)| *flaw)
}

/// Checks that no two handlers have or had the same name: they would share their claims.
fn distinct(handlers: &[&Facts]) -> Result<(), Error> {
    let mut names = HashMap::new();
    for (at, handler) in handlers.iter().enumerate() {
        for name in handler.formerly.iter().chain([&handler.name]) {
            if names.insert(*name, at).is_some_and(|other| other != at) {
                return Err(Error::Config(format!(
                    "two handlers have the name {name:?}, or had it formerly, and only one of them can have its claims: give one \
                     of them another, `#[idempotent(name = \"..\")]`"
                )));
            }
        }
    }
    Ok(())
}

/// Checks that no two handlers take the same messages. For that they need [`fan_out`](crate::Worker::fan_out): it changes how
/// their messages are taken, which must not happen by accident.
fn apart(handlers: &[&Facts], settings: &Settings) -> Result<(), Error> {
    let receivers: Vec<_> =
        handlers.iter().filter(|handler| !handler.limits.is_local_only && !settings.fan_out).collect();
    for (at, handler) in receivers.iter().enumerate() {
        for earlier in &receivers[..at] {
            let (one, other) = (earlier.name, handler.name);
            let text = match (&settings.route_by, earlier.event, handler.event) {
                // If both matched a subject, the choice of the handler would be arbitrary.
                (RouteBy::Subject, Some(pattern), Some(second)) if subject::overlap(pattern, second) => format!(
                    "the handlers {one:?} and {other:?} take the subjects {pattern:?} and {second:?}, and some subjects match \
                     both: use patterns that do not overlap, or let each handler take those messages, `.fan_out()`"
                ),
                (_, event, second) if event == second => {
                    let event =
                        event.map_or_else(|| "no type of event".to_owned(), |event| format!("the event {event:?}"));
                    format!(
                        "the handlers {one:?} and {other:?} both name {event}: give each its own, `#[idempotent(event = \
                         \"..\")]`, or let each of them handle every message, `.fan_out()`"
                    )
                }
                _ => continue,
            };
            return Err(Error::Config(text));
        }
    }
    Ok(())
}

/// Checks that the source has that by which handlers are chosen. Otherwise no message would reach a handler that names an event
/// or a pattern.
fn routing(handlers: &[&Facts], source: &impl Source, settings: &Settings) -> Result<(), Error> {
    let mut receivers = handlers.iter().filter(|handler| !handler.limits.is_local_only);
    let named = receivers.find_map(|handler| Some((handler.name, handler.event?)));
    let (needs, lacks, remedy) = match (&settings.route_by, named) {
        (RouteBy::Subject, _) if !source.has_subjects() => {
            ("`.route_by_subject()` needs subjects".to_owned(), "subjects", "remove it, and name")
        }
        (RouteBy::EventType, Some((name, event))) if !settings.cloud_events && !source.has_event_types() => {
            let needs = format!("the handler {name:?} takes the event {event:?}");
            (
                needs,
                "event types",
                "read CloudEvents, `.cloud_events()`, open the envelope, `.envelope(..)` of the source, or name",
            )
        }
        _ => return Ok(()),
    };
    let (source, system) = (source.name(), source.system());
    Err(Error::Config(format!(
        "{needs}, but {source} ({system}) has no {lacks}: {remedy} the header that has the event type, `.event_type(..)`"
    )))
}

/// The longest timeout of a call: a day.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Returns what is wrong with a call and its handler.
fn call_flaw(handler: &Facts, limits: &CallLimits) -> Option<String> {
    let CallLimits { name, timeout, key_life, .. } = limits;
    let many = format!(
        "it makes {} calls, and only one would be made. Let it hand over to another handler for each, \
         `outbox.local::<..>(..)`",
        handler.calls
    );
    let long = format!(
        "its timeout is {timeout:?}, and a process that ends in it leaves its message for that long. Give it at most {LONGEST:?}"
    );
    let short = format!(
        "it may take {timeout:?}, and 10 seconds until it is sent. Its `key_life` of {:?}, less a tenth, is shorter, so the \
         provider could forget a key before the call arrives: lower the timeout, or make it a call without a key, `at_most_once`",
        key_life.unwrap_or_default()
    );
    let flaws: [(bool, &str); 10] = [
        (
            name.ends_with(AT_MOST_ONCE),
            "rows keep a call without a key under a name with this ending. Give the call another name",
        ),
        (handler.is_natural, "it is natural, so a copy of a message would call again. Remove `natural`"),
        (handler.calls > 1, &many),
        (handler.takes_batch, "it takes a batch, and a call is made for one message: let it take one message"),
        (!handler.call_fits, "the call takes another message than the handler"),
        (limits.writes, "the call takes `Outbox`, and a call has no transaction. Take it in the handler"),
        (
            key_life.is_some() && !limits.takes_key,
            "it has a `key_life` and takes no `OutboundKey`, so the provider could not recognize a call that is repeated. Take \
             the key and send it, or make it a call without a key, `at_most_once`. A parameter type that extracts the key by \
             itself has to say so, `Param::NEEDS_CALL`",
        ),
        (timeout.is_zero(), "its timeout is zero: give it a longer time"),
        (*timeout > LONGEST, &long),
        (!limits.is_usable(None), &short),
    ];
    first(&flaws).map(|flaw| format!("makes the call `{name}`: {flaw}"))
}
