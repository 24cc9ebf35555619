//! What a delivery is before anything is asked of the database: limits, handler, message, key, fingerprint.

use tracing::Span;

use crate::delivery::Preparation;
use crate::registry::{Job, NoJob, Route, Unfit, Work};
use crate::store::Identity;
use crate::{Delivery, Key, Reason, Store};

use super::pipeline::Pipeline;

impl<S: Store> Pipeline<S> {
    /// Limits, decode, key: all that can refuse a delivery before a transaction begins.
    pub(crate) fn receive(&self, delivery: &Delivery) -> Result<Work<'_, S>, NoJob> {
        self.limit(delivery)?;
        let route = self.routes.find(delivery)?;
        let mut key = Key::empty();
        let job = route.handler.prepare(delivery, &mut key)?;
        let span = Span::current();
        span.record("idem.handler", route.handler.name());
        span.record("idem.key", tracing::field::display(&key));
        let identity = Identity { handler: route.id, key, fingerprint: route.handler.fingerprint(delivery)? };
        Ok(Work { route, identity, job })
    }

    /// Reads what a delivery says of itself as a CloudEvent, where that is asked for: as it is received, and as its row is
    /// taken from the inbox, which keeps it as it came.
    pub(crate) fn recognize(&self, delivery: &mut Delivery) {
        if self.settings.cloud_events && delivery.payload().len() <= self.settings.max_payload {
            delivery.cloud_event = crate::cloud_event::read(delivery);
        }
    }

    /// Whether it can be taken over at all.
    pub(crate) fn limit(&self, delivery: &Delivery) -> Result<(), Unfit> {
        if let Some(why) = &delivery.unrepresentable {
            return Err(Unfit::new(Reason::Unrepresentable, why.to_string()));
        }
        let (size, limit) = (delivery.payload().len(), self.settings.max_payload);
        if size > limit {
            let text = format!("the payload has {size} bytes, and the limit is {limit}: raise `.max_payload(..)`");
            return Err(Unfit::new(Reason::TooLarge, text));
        }
        if let Some(Err(why)) = &delivery.cloud_event {
            return Err(Unfit::new(Reason::Undecodable, why));
        }
        if let Preparation::Undecodable(why) = &delivery.preparation {
            return Err(Unfit::new(Reason::Undecodable, why));
        }
        Ok(())
    }

    /// Decodes once more, since a run has consumed the message.
    pub(crate) fn again(
        &self,
        route: &Route<S>,
        delivery: &Delivery,
        identity: &Identity,
    ) -> Result<Box<dyn Job<S>>, NoJob> {
        route.handler.prepare(delivery, &mut identity.key.clone())
    }
}
