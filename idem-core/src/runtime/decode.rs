//! The checks of a delivery before any query: limits, handler, message, key, fingerprint. The recognition of CloudEvents, and
//! the second decode before a message runs again.

use std::sync::Arc;

use tracing::Span;

use crate::delivery::KeptCall;
use crate::registry::{NoJob, Undeliverable};
use crate::routes::{Route, Routes};
use crate::run::Work;
use crate::store::{Identity, Row};
use crate::{Delivery, Key, Reason, Store, telemetry};

use super::pipeline::Pipeline;
use super::settings::Settings;

impl<S: Store> Pipeline<S> {
    /// Checks the limits, decodes the message and computes the key: everything that can reject a delivery before a
    /// transaction starts. The caller has asked whether [several](crate::routes::Routes::are_several) handlers take the delivery,
    /// which then has to be stored for each of them: only the first one would be found here, and the others would miss it.
    pub(crate) fn decode<'a>(&'a self, delivery: &'a Delivery) -> Result<Work<'a, S>, NoJob> {
        debug_assert!(!self.routes.are_several(delivery), "it is for several handlers");
        self.limit(delivery)?;
        self.decode_for(self.routes.find(delivery)?, delivery)
    }

    /// Decodes the message and computes the key for this handler.
    pub(crate) fn decode_for<'a>(&self, route: &'a Route<S>, delivery: &'a Delivery) -> Result<Work<'a, S>, NoJob> {
        if let Some((_, why)) = delivery.rare().undecodable.iter().find(|(id, _)| *id == route.id) {
            return Err(Undeliverable::new(Reason::Undecodable, why).into());
        }
        let mut key = Key::empty();
        let job = route.handler.decode(delivery, &mut key)?;
        if telemetry::is_traced() {
            let span = Span::current();
            span.record("idem.handler", route.handler.facts().name);
            span.record("idem.key", tracing::field::display(&key));
        }
        let identity = Identity { handler: route.id, key, fingerprint: route.handler.fingerprint(delivery)? };
        Ok(Work { at: 0, delivery, row: None, route, identity, job: Some(job), waited: None })
    }

    /// Does [`recognize`] with the settings of this worker.
    pub(crate) fn recognize(&self, delivery: &mut Delivery) {
        recognize(&self.settings, delivery);
    }

    /// Completes the delivery of a row that was fetched: recognizes a CloudEvent, and adds what the row has kept of its external
    /// call.
    pub(crate) fn complete(&self, row: &mut Row) {
        self.recognize(&mut row.delivery);
        let Row { answer, call_name, called_at, .. } = &*row;
        let (answer, name, called_at) = (answer.clone(), call_name.clone(), *called_at);
        let call = row.provider_key.map(|provider_key| Arc::new(KeptCall { provider_key, answer, name, called_at }));
        row.delivery.set_rare(|rare| &mut rare.call, call);
    }

    /// Does [`limit`] with the limits of this worker.
    pub(crate) fn limit(&self, delivery: &Delivery) -> Result<(), Undeliverable> {
        limit(&self.settings, &self.routes, delivery)
    }

    /// Decodes the message of a work, whose key is known: that of a row, or one that a transaction has taken.
    pub(crate) fn decode_again(&self, work: &mut Work<'_, S>) -> Result<(), NoJob> {
        self.limit(work.delivery)?;
        work.job = Some(work.route.handler.decode(work.delivery, &mut work.identity.key.clone())?);
        Ok(())
    }
}

/// Parses a delivery as a CloudEvent, if enabled. This happens when it is received, and again when its row is fetched
/// from the inbox, which stores it unchanged.
pub(crate) fn recognize(settings: &Settings, delivery: &mut Delivery) {
    if settings.cloud_events && delivery.payload().len() <= settings.max_payload {
        let event = crate::cloud_event::read(delivery);
        delivery.set_rare(|rare| &mut rare.cloud_event, event);
    }
}

/// Checks whether the delivery can be accepted at all.
pub(crate) fn limit<S: Store>(
    settings: &Settings,
    routes: &Routes<S>,
    delivery: &Delivery,
) -> Result<(), Undeliverable> {
    if let Some(why) = delivery.unrepresentable() {
        return Err(Undeliverable::new(Reason::Unrepresentable, why));
    }
    let (size, limit) = (delivery.payload().len(), settings.max_payload);
    if size > limit {
        let text = format!("the payload has {size} bytes, and the limit is {limit}: raise `.max_payload(..)`");
        return Err(Undeliverable::new(Reason::TooLarge, text));
    }
    if let Some(header) = routes.ambiguous(delivery) {
        let text = format!("it has several headers `{header}`, with different values, so its event type is not known");
        return Err(Undeliverable::new(Reason::Undecodable, text));
    }
    if let Some(Err(why)) = &delivery.rare().cloud_event {
        return Err(Undeliverable::new(Reason::Undecodable, why));
    }
    Ok(())
}
