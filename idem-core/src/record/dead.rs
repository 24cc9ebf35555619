//! Dead letters of messages that have no key.

use tracing::Span;

use crate::registry::Unfit;
use crate::runtime::{HoldReason, Pipeline, Progress};
use crate::store::{HandlerId, Identity, NewRow};
use crate::{Delivery, Fingerprint, Key, Outcome, Store, telemetry};

use super::committed::committed;

impl<S: Store> Pipeline<S> {
    /// Stores a complete delivery for which no key could be determined. It is identified by the hash of everything that
    /// makes up the message.
    pub(crate) async fn dead_letter(&self, delivery: &Delivery, unfit: Unfit) -> Progress {
        if self.brake.holds(&unfit) {
            return Progress::Hold(HoldReason::Unfit);
        }
        let handler = self.routes.find(delivery).map_or(self.routes.nobody, |route| {
            Span::current().record("idem.handler", route.handler.name());
            route.id
        });
        let identity = claimless(handler, delivery);
        let state = Err(unfit.reason);
        let row = NewRow::new(&identity, delivery, state).with_attempts(0, &unfit.error);
        let mut txn = match self.store.begin(self.settings.handler_timeout).await {
            Ok(txn) => txn,
            Err(fault) => return self.outage.hold_for(fault),
        };
        let id = match self.store.insert(&mut txn, &[row]).await {
            Ok(ids) => ids.first().copied(),
            Err(fault) => return self.abandon(txn, fault).await,
        };
        match committed(self.store.commit(txn).await) {
            Ok(()) => {
                self.brake.unfit(&unfit);
                telemetry::tell(id, 0, state, &unfit.error);
                Progress::Done(Outcome::Dead { reason: unfit.reason })
            }
            Err(fault) => self.outage.hold_for(fault),
        }
    }
}

/// Returns the identity of a delivery without a key.
pub(crate) fn claimless(handler: HandlerId, delivery: &Delivery) -> Identity {
    Identity { handler, key: Key::empty(), fingerprint: Fingerprint::of_keyless(delivery) }
}
