//! What a failed statement of idem means for a delivery, and the pauses of a worker.

use crate::Store;
use crate::store::StoreError;

use super::outage::Outage;
use super::outbox_gate::OutboxGate;
use super::pipeline::Pipeline;
use super::step::{HoldReason, Progress};

impl Outage {
    /// Returns what a failure of one of idem's own statements means for a delivery.
    pub(crate) fn hold_for(&self, fault: StoreError) -> Progress {
        self.report(&fault);
        match fault {
            StoreError::Message(error) => Progress::Refused(error),
            StoreError::LockTimeout | StoreError::Serialization(_) => Progress::Hold(HoldReason::Busy),
            StoreError::ConnectionLost(_) => Progress::Hold(HoldReason::Lost),
            StoreError::Unavailable(_) => Progress::Hold(HoldReason::Again),
        }
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
    /// connection can be reused.
    pub(crate) async fn abandon(&self, txn: S::Txn, fault: StoreError) -> Progress {
        if fault.is_answered()
            && let Err(fault) = self.store.rollback(txn).await
        {
            return self.outage.hold_for(fault);
        }
        self.outage.hold_for(fault)
    }
}
