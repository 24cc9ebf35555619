//! Checks before the start that a worker's handlers are compatible with each other and with its source.

use crate::registry::Facts;
use crate::routes::RouteBy;
use crate::{Error, Source, subject};

use crate::runtime::Settings;

/// Whether a handler takes deliveries, and not local messages only.
fn takes_deliveries(handler: &Facts) -> bool {
    !handler.limits.is_local_only
}

/// Checks that every handler's key can be computed. Otherwise every message would become a dead letter.
pub(super) fn keys(source: &impl Source, handlers: &[&Facts], settings: &Settings) -> Result<(), Error> {
    for handler in handlers.iter().filter(|handler| takes_deliveries(handler)) {
        if handler.needs_cloud_event && !settings.cloud_events {
            return Err(Error::Config(format!(
                "the key of the handler {:?} is the id of a CloudEvent, but the worker does not read CloudEvents: \
                 add `.cloud_events()`",
                handler.name
            )));
        }
        let missing = [
            (handler.needs_position && !source.has_positions(), "position", "positions"),
            (handler.needs_partition_key && !source.has_partition_keys(), "partition key", "partition keys"),
        ];
        if let Some((_, one, many)) = missing.into_iter().find(|(missing, ..)| *missing) {
            return Err(Error::Config(format!(
                "the key of the handler {:?} is the {one} of the message, and {} ({}) has no {many}: take the message id, a \
                 header or a field of the message as the key",
                handler.name,
                source.name(),
                source.system()
            )));
        }
    }
    Ok(())
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
        if let Some(old) = handlers.iter().flat_map(|other| &other.formerly).find(|old| **old == name) {
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
            if settings.fan_out || !takes_deliveries(handler) || !takes_deliveries(earlier) {
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

/// Checks that a handler's own timeout lets it run at all. Otherwise every message would be retried and become a dead
/// letter.
pub(super) fn timeouts(handlers: &[&Facts]) -> Result<(), Error> {
    match handlers.iter().find(|handler| handler.limits.timeout.is_some_and(|timeout| timeout.is_zero())) {
        None => Ok(()),
        Some(handler) => Err(Error::Config(format!(
            "the timeout of the handler {:?} is zero: give its `HandlerOptions::timeout(..)` a longer time, or leave it out \
             for the worker's",
            handler.name
        ))),
    }
}

/// Checks that no natural batch handler stages messages. Their ids are random, so each copy of a message that runs again would
/// stage others, which no consumer recognizes.
pub(super) fn natural(handlers: &[&Facts]) -> Result<(), Error> {
    match handlers.iter().find(|handler| handler.is_natural && handler.takes_batch && handler.stages) {
        None => Ok(()),
        Some(handler) => Err(Error::Config(format!(
            "the handler {:?} is natural, takes a batch and stages messages: those of a batch get random ids, so a copy of a \
             message that runs again would publish others. Let it take one message at a time, or remove `natural`",
            handler.name
        ))),
    }
}

/// Checks that the source has subjects if they choose the handler. Otherwise every message would go to the handler
/// without a pattern, or become a dead letter.
pub(super) fn subjects(source: &impl Source, by: &RouteBy) -> Result<(), Error> {
    if *by != RouteBy::Subject || source.has_subjects() {
        return Ok(());
    }
    Err(Error::Config(format!(
        "`.route_by_subject()` needs subjects, but {} ({}) has no subjects: remove it, and name the header that has \
         the event type, `.event_type(..)`",
        source.name(),
        source.system()
    )))
}

/// Checks that the source has event types if they choose the handler. Otherwise no message would reach a handler that
/// names one.
pub(super) fn event_types(source: &impl Source, handlers: &[&Facts], settings: &Settings) -> Result<(), Error> {
    let mut takers = handlers.iter().filter(|handler| takes_deliveries(handler));
    let named = takers.find_map(|handler| Some((handler.name, handler.event?)));
    let Some((name, event)) = named else { return Ok(()) };
    if settings.route_by != RouteBy::EventType || settings.cloud_events || source.has_event_types() {
        return Ok(());
    }
    Err(Error::Config(format!(
        "the handler {name:?} takes the event {event:?}, but {} ({}) has no event types: name the header that has the \
         event type, `.event_type(..)`, or read CloudEvents, `.cloud_events()`",
        source.name(),
        source.system()
    )))
}
