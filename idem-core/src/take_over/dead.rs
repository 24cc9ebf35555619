//! Dead letters of messages that have no key.

use tracing::Span;

use crate::registry::Unfit;
use crate::runtime::{HoldReason, Pipeline, Progress};
use crate::store::{HandlerId, Identity, NewRow};
use crate::{Delivery, Fingerprint, Key, Outcome, Store, telemetry};

impl<S: Store> Pipeline<S> {
    /// Stores a complete delivery for which no key could be determined. It is identified by the hash of everything that
    /// makes up the message.
    pub(crate) async fn dead_letter(&self, delivery: &Delivery, unfit: Unfit) -> Progress {
        if self.brake.holds(&unfit) {
            return Progress::Hold(HoldReason::Again);
        }
        let handler = self.routes.find(delivery).map_or(self.routes.nobody, |route| {
            Span::current().record("idem.handler", route.handler.facts().name);
            route.id
        });
        let identity = claimless(handler, delivery);
        let state = Err(unfit.reason);
        let row = NewRow::new(&identity, delivery, state).with_attempts(0, &unfit.error);
        let mut txn = match self.store.begin(self.settings.handler_timeout).await {
            Ok(txn) => txn,
            Err(fault) => return self.outage.hold_for(fault),
        };
        let inserted = self.store.insert(&mut txn, &[row]).await.map(|ids| ids.first().copied());
        match self.commit_written(txn, inserted).await {
            Ok(id) => {
                self.brake.unfit(&unfit);
                telemetry::tell(id, 0, state, &unfit.error);
                Progress::Done(Outcome::Dead { reason: unfit.reason })
            }
            Err(step) => step,
        }
    }
}

/// Returns the identity of a delivery without a key.
pub(crate) fn claimless(handler: HandlerId, delivery: &Delivery) -> Identity {
    Identity { handler, key: Key::empty(), fingerprint: Fingerprint::of_keyless(delivery) }
}
