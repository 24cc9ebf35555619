//! Checks before the start that a worker's handlers are compatible with each other and with its source, and that their external
//! calls can be made.

use std::time::Duration;

use crate::external::{AT_MOST_ONCE, CallLimits};
use crate::registry::Facts;
use crate::routes::RouteBy;
use crate::runtime::Settings;
use crate::{Error, Source, subject};

/// Checks each handler by itself: that it can run, that its key can be computed, and that its external call can be made and
/// repeated. Otherwise every message would become a dead letter.
pub(super) fn each(handlers: &[&Facts], source: &impl Source, settings: &Settings) -> Result<(), Error> {
    handlers.iter().try_for_each(|handler| match flaw(handler, source, settings) {
        None => Ok(()),
        Some(flaw) => Err(Error::Config(format!("the handler {:?} {flaw}", handler.name))),
    })
}

/// Returns what is wrong with a handler.
fn flaw(handler: &Facts, source: &impl Source, settings: &Settings) -> Option<String> {
    if handler.limits.timeout.is_some_and(|timeout| timeout.is_zero()) {
        let text = "has a timeout of zero: give its `HandlerOptions::timeout(..)` a longer time, or leave it out for the \
                    worker's";
        return Some(text.to_owned());
    }
    if handler.is_natural && handler.takes_batch && handler.stages {
        let text = "is natural, takes a batch and stages messages: those of a batch get random ids, so a copy of a message \
                    that runs again would publish others. Let it take one message at a time, or remove `natural`";
        return Some(text.to_owned());
    }
    let takes_deliveries = !handler.limits.is_local_only;
    if takes_deliveries && handler.needs_cloud_event && !settings.cloud_events {
        let text =
            "takes the id of a CloudEvent as its key, but the worker does not read CloudEvents: add `.cloud_events()`";
        return Some(text.to_owned());
    }
    let missing = [
        (handler.needs_position && !source.has_positions(), "position", "positions"),
        (handler.needs_partition_key && !source.has_partition_keys(), "partition key", "partition keys"),
    ];
    if let Some((_, one, many)) = missing.into_iter().find(|(missing, ..)| takes_deliveries && *missing) {
        let (source, system) = (source.name(), source.system());
        return Some(format!(
            "takes the {one} of the message as its key, and {source} ({system}) has no {many}: take the message id, a header or \
             a field of the message as the key"
        ));
    }
    match &handler.external {
        None => handler.needs_call.then(|| {
            "takes the key of an external call, and makes none: name the call, `#[idempotent(.., call = ..)]`"
                .to_owned()
        }),
        Some(limits) => call_flaw(handler, limits),
    }
}

/// Checks that names and event types are distinct. Two handlers with the same name would share their claims. Two
/// handlers for one event type need [`fan_out`](crate::Worker::fan_out): it changes how their messages are taken, which
/// must not happen by accident.
pub(super) fn distinct(handlers: &[&Facts], settings: &Settings) -> Result<(), Error> {
    let by = &settings.route_by;
    for (at, handler) in handlers.iter().enumerate() {
        let (name, event) = (handler.name, handler.event);
        if name.is_empty() || name.len() > 200 || name.contains('\0') {
            return Err(Error::Config(format!("the handler name {name:?} must have 1 to 200 bytes and no NUL")));
        }
        if let Some(old) = handlers.iter().flat_map(|other| other.formerly).find(|old| **old == name) {
            return Err(Error::Config(format!(
                "the worker has a handler {name:?}, and another one (or the same) that was {old:?} formerly: one of them needs \
                 another name"
            )));
        }
        let of_another = |old: &&str| handlers[..at].iter().any(|earlier| earlier.formerly.contains(old));
        if let Some(old) = handler.formerly.iter().find(|old| of_another(old)) {
            return Err(Error::Config(format!(
                "two handlers were {old:?} formerly, {name:?} and an earlier one: only one of them can have its claims"
            )));
        }
        if *by == RouteBy::Subject
            && let Some((pattern, flaw)) = event.and_then(|pattern| Some((pattern, subject::flaw(pattern)?)))
        {
            return Err(Error::Config(format!(
                "the handler {name:?} takes the subjects {pattern:?}, which is not a pattern of subjects: {flaw}"
            )));
        }
        for earlier in &handlers[..at] {
            if earlier.name == name {
                return Err(Error::Config(format!(
                    "two handlers have the name {name:?}: give one of them another, `#[idempotent(name = \"..\")]`"
                )));
            }
            if settings.fan_out || handler.limits.is_local_only || earlier.limits.is_local_only {
                continue;
            }
            if *by == RouteBy::Subject
                && let (Some(pattern), Some(other)) = (event, earlier.event)
            {
                apart((name, pattern), (earlier.name, other))?;
            } else if earlier.event == event {
                let event = event.map_or_else(|| "no type of event".to_owned(), |event| format!("the event {event:?}"));
                return Err(Error::Config(format!(
                    "the handlers {:?} and {name:?} both name {event}: give each its own, `#[idempotent(event = \
                     \"..\")]`, or let each of them handle every message, `.fan_out()`",
                    earlier.name
                )));
            }
        }
    }
    Ok(())
}

/// Checks that two patterns do not overlap. If both matched a subject, the choice of the handler would be arbitrary.
fn apart((name, pattern): (&str, &str), (earlier, other): (&str, &str)) -> Result<(), Error> {
    if !subject::overlap(pattern, other) {
        return Ok(());
    }
    Err(Error::Config(format!(
        "the handlers {earlier:?} and {name:?} take the subjects {other:?} and {pattern:?}, and some subjects match \
         both: use patterns that do not overlap, or let each handler take those messages, `.fan_out()`"
    )))
}

/// Checks that the source has that by which handlers are chosen. Otherwise no message would reach a handler that names an event
/// or a pattern.
pub(super) fn routing(handlers: &[&Facts], source: &impl Source, settings: &Settings) -> Result<(), Error> {
    let mut takers = handlers.iter().filter(|handler| !handler.limits.is_local_only);
    let named = takers.find_map(|handler| Some((handler.name, handler.event?)));
    let (needs, lacks, cure) = match (&settings.route_by, named) {
        (RouteBy::Subject, _) if !source.has_subjects() => {
            ("`.route_by_subject()` needs subjects".to_owned(), "subjects", "remove it, and name")
        }
        (RouteBy::EventType, Some((name, event))) if !settings.cloud_events && !source.has_event_types() => {
            let needs = format!("the handler {name:?} takes the event {event:?}");
            (needs, "event types", "read CloudEvents, `.cloud_events()`, or name")
        }
        _ => return Ok(()),
    };
    let (source, system) = (source.name(), source.system());
    Err(Error::Config(format!(
        "{needs}, but {source} ({system}) has no {lacks}: {cure} the header that has the event type, `.event_type(..)`"
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
    let found = flaws.into_iter().find(|(is_so, _)| *is_so);
    found.map(|(_, flaw)| format!("makes the call `{name}`: {flaw}"))
}
