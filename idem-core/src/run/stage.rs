//! The messages that handlers stage, until the commit writes them, and those of them that are for another handler of the worker.

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;

use uuid::Uuid;

use crate::outbox::{Ids, Origin, Outbox, Outgoing, StagedMessage};
use crate::registry::NoJob;
use crate::routes::{Route, RouteBy, Routes};
use crate::runtime::{Pipeline, Settings, limit, recognize};
use crate::store::{Identity, LocalMessage};
use crate::{BoxError, Delivery, Key, Store, telemetry};

/// The messages of one transaction, in the order in which its handlers staged them. It allocates nothing while it is
/// empty.
#[derive(Default)]
pub(crate) struct Staged {
    pub(crate) outgoing: Vec<StagedMessage>,
    pub(crate) local: Vec<LocalMessage>,
}

/// The source of local messages, in place of a queue.
const SOURCE: &str = "local";

impl<S: Store> Pipeline<S> {
    /// Takes the messages that a handler has staged, which has returned `Ok`, and adds them to those of its transaction.
    /// The incoming message counts only for handlers of one message: a batch handler would stage others if it ran with other
    /// messages.
    ///
    /// # Errors
    /// One of them cannot be sent. This is a failure of the handler.
    pub(super) fn stage(
        &self,
        staged: &mut Staged,
        route: &Route<S>,
        incoming: (&Identity, &Delivery),
        outbox: &Outbox,
    ) -> Result<(), BoxError> {
        let incoming = (!route.handler.facts().takes_batch).then_some(incoming);
        let messages = outbox.take();
        if messages.is_empty() {
            return Ok(());
        }
        let (consumer, handler) = (self.consumer.as_str(), route.handler.facts().name);
        let to = self.outbox.ok_or_else(|| undeclared(handler))?;
        let key = incoming.map(|(identity, _)| &identity.key);
        let origin = Origin { namespace: to.namespace, consumer, handler, key };
        let limit = self.store.facts().notifier.limit(to);
        let handed_over = staged.local.len();
        staged.add(messages, limit, &origin, |id, message| {
            local(&self.routes, &self.settings, id, message, incoming.map(|(_, delivery)| delivery))
        })?;
        if staged.local.len() > handed_over {
            self.hands_over.store(true, Relaxed);
        }
        Ok(())
    }
}

impl Staged {
    /// Adds the messages that one run has staged, each with its id, after the checks of what no relay can publish: `limit` is the
    /// size of the largest one. `local` prepares one for another handler.
    pub(crate) fn add(
        &mut self,
        messages: Vec<Outgoing>,
        limit: Option<usize>,
        origin: &Origin<'_>,
        local: impl Fn(Uuid, Outgoing) -> Result<LocalMessage, String>,
    ) -> Result<(), BoxError> {
        let mut ids = Ids::default();
        for (place, mut message) in messages.into_iter().enumerate() {
            let limit = limit.filter(|_| !message.is_local);
            // First, because these headers count as well for the size.
            telemetry::carry_on(&mut message.headers);
            let checked = message.check().and_then(|()| message.check_size(limit)).and_then(|()| ids.check(&message));
            checked.map_err(|why| format!("message {place} that the handler staged cannot be sent: {why}"))?;
            let id = message.id.unwrap_or_else(|| origin.id(place));
            if message.is_local {
                self.local.push(local(id, message)?);
            } else {
                self.outgoing.push(StagedMessage::new(id, message));
            }
        }
        Ok(())
    }
}

/// Finds the handler of a local message among those of a worker, and computes its key and fingerprint as for a delivery. Whatever
/// makes a dead letter of a delivery is an error here: unlike a producer, the handler that stages it can be told. `from`: the
/// delivery for which that handler runs; `None` for a batch handler, which runs for several, and for a request.
pub(crate) fn local<S: Store>(
    routes: &Routes<S>,
    settings: &Settings,
    id: Uuid,
    message: Outgoing,
    from: Option<&Delivery>,
) -> Result<LocalMessage, String> {
    let name = message.to.clone();
    let refused = |why: &str| format!("the handler {name:?} cannot take a local message: {why}");
    let Some(route) = routes.named(&message.to) else {
        return Err(refused("this worker does not have it, and only a handler of the same worker can be named"));
    };
    let id = id.to_string();
    let mut delivery = Delivery::new(SOURCE, message.payload)
        .with_message_id(Some(id.clone()))
        .with_content_type(message.content_type)
        .with_headers(message.headers);
    if routes.route_by == RouteBy::EventType {
        delivery.event_type = route.handler.facts().event.map(ToOwned::to_owned);
    }
    recognize(settings, &mut delivery);
    limit(settings, routes, &delivery).map_err(|undeliverable| refused(&undeliverable.error))?;
    let key = match route.handler.key_if_known(&delivery) {
        Ok(Some(key)) => Ok(key),
        // No copy of it can come from a broker under a key that it does not have, so its id identifies it.
        Ok(None) => Key::of(&id).map_err(|error| refused(&error.to_string())),
        Err(NoJob::Undeliverable(undeliverable)) => Err(refused(&undeliverable.error)),
        Err(NoJob::Unprepared) => Err(refused("its codec has to prepare first, which is impossible in a transaction")),
    }?;
    let fingerprint = route.handler.fingerprint(&delivery).map_err(|undeliverable| refused(&undeliverable.error))?;
    let identity = Identity { handler: route.id, key, fingerprint };
    // The local message itself has no position.
    let from = from.unwrap_or(&delivery);
    let provider_key = route.external.map(|call| call.first_provider_key(&identity, from));
    Ok(LocalMessage { identity, delivery, provider_key })
}

/// The error of a handler that stages messages although none of its parameters has announced it.
fn undeclared(handler: &str) -> String {
    format!(
        "the handler {handler:?} stages messages, and its worker has no outbox, because no parameter of a handler has said \
         that it needs one: an extractor that passes on an `Outbox` has to declare \
         `const STAGES: bool = true;` in its implementation of `Param`"
    )
}

/// Sorts messages in claim order, and drops copies. Of several with one key, the one that was staged first comes first.
pub(crate) fn in_claim_order(mut messages: Vec<LocalMessage>) -> Vec<LocalMessage> {
    let mut known = HashSet::new();
    messages.retain(|LocalMessage { identity: Identity { handler, key, fingerprint }, .. }| {
        known.insert((*handler, key.clone(), *fingerprint))
    });
    messages.sort_by(|one, other| one.identity.sort_key().cmp(&other.identity.sort_key()));
    messages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fingerprint;
    use crate::store::HandlerId;

    #[test]
    fn copies_are_dropped_and_the_first_of_a_key_stays_first() {
        let message = |handler: i32, key: &str, payload: &'static str| LocalMessage {
            identity: Identity {
                handler: HandlerId(handler),
                key: Key::of(key).unwrap(),
                fingerprint: Fingerprint::of(payload.as_bytes()),
            },
            delivery: Delivery::new(SOURCE, payload),
            provider_key: None,
        };
        let staged = [(2, "a", "1"), (1, "b", "2"), (1, "a", "2"), (1, "b", "1"), (1, "b", "2"), (1, "b", "1")];
        let staged = staged.map(|(handler, key, payload)| message(handler, key, payload)).to_vec();
        let shown = |message: &LocalMessage| {
            let Identity { handler, key, .. } = &message.identity;
            format!("{} {key} {}", handler.0, String::from_utf8_lossy(message.delivery.payload()))
        };
        let sorted: Vec<String> = in_claim_order(staged).iter().map(shown).collect();
        assert_eq!(sorted, ["1 a 2", "1 b 2", "1 b 1", "2 a 1"]);
    }
}
