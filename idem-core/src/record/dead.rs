//! Dead letters of messages that have no key, or whose handler has committed.

use crate::registry::Unfit;
use crate::runtime::{HoldReason, Pipeline, Progress};
use crate::store::{HandlerId, Identity, NewRow};
use crate::{Delivery, Fingerprint, Key, Outcome, Reason, Store, telemetry};

use super::committed::committed;

impl<S: Store> Pipeline<S> {
    /// Stores a complete delivery for which no key could be determined. It is identified by the hash of everything that
    /// makes up the message.
    pub(crate) async fn dead_letter(&self, delivery: &Delivery, unfit: Unfit) -> Progress {
        if self.brake.holds(&unfit) {
            return Progress::Hold(HoldReason::Unfit);
        }
        let handler = self.routes.find(delivery).map_or(self.routes.nobody, |route| route.id);
        let identity = claimless(handler, delivery);
        let state = Err(unfit.reason);
        let row = NewRow { identity: &identity, delivery, attempts: 0, state, error: &unfit.error };
        let mut txn = match self.store.begin(self.settings.handler_timeout).await {
            Ok(txn) => txn,
            Err(fault) => return self.outage.hold_for(fault),
        };
        let id = match self.store.insert(&mut txn, &row).await {
            Ok(id) => id,
            Err(fault) => return self.abandon(txn, fault).await,
        };
        match committed(self.store.commit(txn).await) {
            Ok(()) => {
                self.brake.unfit(&unfit);
                telemetry::tell(Some(id), 0, state, &unfit.error);
                Progress::Done(Outcome::Dead { reason: unfit.reason })
            }
            Err(fault) => self.outage.hold_for(fault),
        }
    }

    /// Makes a message dead whose handler ran COMMIT. Its claim stands, so the message would count as processed if this
    /// were not written. It therefore retries until the database has responded, also while the worker stops, for as
    /// long as that permits.
    pub(crate) async fn committed_early(&self, delivery: &Delivery, identity: &Identity, attempts: u32) -> Outcome {
        let error = "the handler ran COMMIT, so its writes may be committed: return Ok(()), and idem commits";
        let row = NewRow { identity, delivery, attempts, state: Err(Reason::Committed), error };
        let write = || async {
            let mut txn = self.store.begin(self.settings.handler_timeout).await?;
            self.store.reopen(&mut txn, identity.handler, &identity.key).await?;
            let id = self.store.insert(&mut txn, &row).await?;
            committed(self.store.commit(txn).await)?;
            telemetry::tell(Some(id), attempts, row.state, error);
            Ok(())
        };
        self.outage.persist(write).await;
        Outcome::Dead { reason: Reason::Committed }
    }
}

/// Returns the identity of a delivery without a key.
pub(crate) fn claimless(handler: HandlerId, delivery: &Delivery) -> Identity {
    Identity { handler, key: Key::empty(), fingerprint: Fingerprint::of_keyless(delivery) }
}
