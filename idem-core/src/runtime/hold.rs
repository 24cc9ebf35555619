//! What a failed statement of idem means for a message, and the pauses of a worker.

use crate::Store;
use crate::store::StoreError;

use super::ended::{Ended, Wait};
use super::outage::Outage;
use super::outbox_gate::OutboxGate;
use super::pipeline::Pipeline;

impl Outage {
    /// Returns what a failure of one of idem's own statements means for a message.
    pub(crate) fn hold_for(&self, fault: StoreError) -> Ended {
        self.report(&fault);
        Ended::Park(match fault {
            StoreError::Message(error) => Wait::Refused(error),
            StoreError::LockTimeout | StoreError::Serialization(_) => Wait::Claim,
            StoreError::ConnectionLost(_) => Wait::Answer,
            StoreError::Unavailable(_) => Wait::Free,
        })
    }
}

impl<S: Store> Pipeline<S> {
    /// Returns whether more messages wait to be published than the user permits.
    pub(crate) fn is_outbox_full(&self) -> bool {
        self.settings.backlog.is_some() && self.outbox.as_ref().is_some_and(OutboxGate::is_full)
    }

    /// Waits until it is so, or until it is not. Cancel safe.
    pub(crate) async fn outbox_full(&self, full: bool) {
        match &self.outbox {
            Some(gate) if full != self.is_outbox_full() => gate.becomes(full).await,
            None if full => std::future::pending().await,
            _ => {}
        }
    }

    /// Waits for the end of an outage, or if there is none for a while, longer from try to try. The drain ends the wait.
    pub(crate) async fn pause(&self, tries: usize) {
        self.draining.run_until_cancelled(self.outage.pause(tries)).await;
    }

    /// Abandons a transaction after a failure. If the database answers, the transaction is rolled back and its
    /// connection can be reused. Returns the failure, or that of the rollback.
    pub(crate) async fn abandon(&self, txn: S::Txn, fault: StoreError) -> StoreError {
        match fault.is_answered() {
            true => self.store.rollback(txn).await.err().unwrap_or(fault),
            false => fault,
        }
    }
}
