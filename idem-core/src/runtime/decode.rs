//! The checks of a delivery before any query: limits, handler, message, key, fingerprint.
//!
//! Also here: the recognition of CloudEvents, the second decode before a message runs again, and the choice of the
//! handler whose codec has to prepare.

use std::sync::Arc;

use tracing::Span;

use crate::caught::dropped;
use crate::delivery::KeptCall;
use crate::registry::{NoJob, Unfit};
use crate::routes::Route;
use crate::run::Work;
use crate::store::{Identity, Row};
use crate::{Delivery, Key, Reason, Store, telemetry};

use super::pipeline::Pipeline;

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
        if let Some(why) = delivery.rare().preparation.undecodable(route.id) {
            return Err(Unfit::new(Reason::Undecodable, why).into());
        }
        let mut key = Key::empty();
        let job = route.handler.decode(delivery, &mut key)?;
        if telemetry::is_heard() {
            let span = Span::current();
            span.record("idem.handler", route.handler.facts().name);
            span.record("idem.key", tracing::field::display(&key));
        }
        let identity = Identity { handler: route.id, key, fingerprint: route.handler.fingerprint(delivery)? };
        Ok(Work::new(route, identity, delivery, job))
    }

    /// Parses a delivery as a CloudEvent, if enabled. This happens when it is received, and again when its row is taken
    /// from the inbox, which stores it unchanged.
    pub(crate) fn recognize(&self, delivery: &mut Delivery) {
        if self.settings.cloud_events && delivery.payload().len() <= self.settings.max_payload {
            let event = crate::cloud_event::read(delivery);
            delivery.set_rare(|rare| &mut rare.cloud_event, event);
        }
    }

    /// Returns the first of these handlers, which take the delivery, whose codec has to prepare for it.
    pub(crate) async fn unprepared<'a>(&self, takers: &[&'a Route<S>], delivery: &Delivery) -> Option<&'a Route<S>> {
        for route in takers {
            if self.is_unprepared(route, delivery).await {
                return Some(route);
            }
        }
        None
    }

    /// Returns whether the codec of this handler has to prepare for the delivery. This decodes beside no suspect that has the
    /// process to itself; the caller must not hold that permit, or a suspect that waits would block both.
    pub(crate) async fn is_unprepared(&self, route: &Route<S>, delivery: &Delivery) -> bool {
        let _beside = self.suspect_lock.direct().await;
        let decoded = self.decode_for(route, delivery);
        let is_unprepared = matches!(decoded, Err(NoJob::Unprepared));
        dropped("a message", decoded);
        is_unprepared
    }

    /// Completes the delivery of a row that was taken: recognizes a CloudEvent, and adds what the row has kept of its external
    /// call.
    pub(crate) fn complete(&self, row: &mut Row) {
        self.recognize(&mut row.delivery);
        let Row { answer, call_name, called_at, .. } = &*row;
        let (answer, name, called_at) = (answer.clone(), call_name.clone(), *called_at);
        let call = row.provider_key.map(|provider_key| Arc::new(KeptCall { provider_key, answer, name, called_at }));
        row.delivery.set_rare(|rare| &mut rare.call, call);
    }

    /// Checks whether the delivery can be accepted at all.
    pub(crate) fn limit(&self, delivery: &Delivery) -> Result<(), Unfit> {
        if let Some(why) = delivery.unrepresentable() {
            return Err(Unfit::new(Reason::Unrepresentable, why));
        }
        let (size, limit) = (delivery.payload().len(), self.settings.max_payload);
        if size > limit {
            let text = format!("the payload has {size} bytes, and the limit is {limit}: raise `.max_payload(..)`");
            return Err(Unfit::new(Reason::TooLarge, text));
        }
        if let Some(header) = self.routes.ambiguous(delivery) {
            let text =
                format!("it has several headers `{header}`, with different values, so its event type is not known");
            return Err(Unfit::new(Reason::Undecodable, text));
        }
        if let Some(Err(why)) = &delivery.rare().cloud_event {
            return Err(Unfit::new(Reason::Undecodable, why));
        }
        Ok(())
    }

    /// Decodes the message of a work, whose key is known: that of a row, or one that a transaction has taken.
    pub(crate) fn decode_again(&self, work: &mut Work<'_, S>) -> Result<(), NoJob> {
        self.limit(work.delivery)?;
        work.job = Some(work.route.handler.decode(work.delivery, &mut work.identity.key.clone())?);
        Ok(())
    }
}
