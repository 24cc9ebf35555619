//! The messages that a handler hands to another one of its worker.

use std::collections::HashSet;

use uuid::Uuid;

use crate::outbox::Outgoing;
use crate::registry::NoJob;
use crate::routes::RouteBy;
use crate::runtime::Pipeline;
use crate::store::{Identity, LocalMessage};
use crate::{Delivery, Key, Store};

/// The source of local messages, in place of a queue.
const SOURCE: &str = "local";

impl<S: Store> Pipeline<S> {
    /// Finds the handler of a local message, and computes its key and fingerprint as for a delivery. Whatever makes a dead
    /// letter of a delivery is an error here: unlike a producer, the handler that stages it can be told. `from`: the delivery
    /// for which that handler runs; `None` for a batch handler, which runs for several.
    pub(super) fn local(&self, id: Uuid, message: Outgoing, from: Option<&Delivery>) -> Result<LocalMessage, String> {
        let name = message.to.clone();
        let refused = |why: &str| format!("the handler {name:?} cannot take a local message: {why}");
        let Some(route) = self.routes.named(&message.to) else {
            return Err(refused("this worker does not have it, and only a handler of the same worker can be named"));
        };
        let id = id.to_string();
        let mut delivery = Delivery::new(SOURCE, message.payload)
            .with_message_id(Some(id.clone()))
            .with_content_type(message.content_type)
            .with_headers(message.headers);
        if self.routes.route_by == RouteBy::EventType {
            delivery.event_type = route.handler.facts().event.map(ToOwned::to_owned);
        }
        self.recognize(&mut delivery);
        self.limit(&delivery).map_err(|undeliverable| refused(&undeliverable.error))?;
        let key = match route.handler.key_if_known(&delivery) {
            Ok(Some(key)) => Ok(key),
            // No copy of it can come from a broker under a key that it does not have, so its id identifies it.
            Ok(None) => Key::of(&id).map_err(|error| refused(&error.to_string())),
            Err(NoJob::Undeliverable(undeliverable)) => Err(refused(&undeliverable.error)),
            Err(NoJob::Unprepared) => {
                Err(refused("its codec has to prepare first, which is impossible in a transaction"))
            }
        }?;
        let fingerprint =
            route.handler.fingerprint(&delivery).map_err(|undeliverable| refused(&undeliverable.error))?;
        let identity = Identity { handler: route.id, key, fingerprint };
        // The local message itself has no position.
        let from = from.unwrap_or(&delivery);
        let provider_key = route.external.map(|call| call.first_provider_key(&identity, from));
        Ok(LocalMessage { identity, delivery, provider_key })
    }
}

/// Sorts messages in claim order, and drops copies. Of several with one key, the one that was staged first comes first.
pub(super) fn in_claim_order(mut messages: Vec<LocalMessage>) -> Vec<LocalMessage> {
    let mut known = HashSet::new();
    messages.retain(|LocalMessage { identity: Identity { handler, key, fingerprint }, .. }| {
        known.insert((*handler, key.clone(), *fingerprint))
    });
    let claim = |message: &LocalMessage| (message.identity.handler.0, message.identity.key.as_bytes().to_vec());
    messages.sort_by_cached_key(claim);
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
