//! Deliveries that are kept unsettled for a while.

use crate::Store;
use crate::store::StoreError;

use super::outage::Outage;
use super::pipeline::Pipeline;
use super::step::{HoldReason, Progress};
use super::waits::{hold_wait, refused_wait};

impl Outage {
    /// What a fault of one of our own statements means for a delivery.
    pub(crate) fn hold_for(&self, fault: StoreError) -> Progress {
        self.report(&fault);
        match fault {
            StoreError::Message(error) => Progress::Refused { error, ran: false },
            fault => Progress::Hold(HoldReason::from(&fault)),
        }
    }
}

impl<S: Store> Pipeline<S> {
    /// Keeps a delivery for a while, without connection, row or transaction. The drain ends it.
    pub(crate) async fn hold(&self, hold: HoldReason, holds: usize) {
        let wait = async {
            if hold != HoldReason::Busy && self.outage.over_or_trial().await {
                return;
            }
            match hold {
                HoldReason::Unfit => self.health.resumed().await,
                HoldReason::Again => {}
                HoldReason::Refused => tokio::time::sleep(refused_wait(holds)).await,
                _ => tokio::time::sleep(hold_wait(holds)).await,
            }
        };
        tokio::select! {
            () = wait => {}
            () = self.draining.cancelled() => {}
        }
    }

    /// Gives a transaction up after a fault. The connection is of use again if it answers.
    pub(crate) async fn abandon(&self, txn: S::Txn, fault: StoreError) -> Progress {
        if fault.is_answered()
            && let Err(fault) = self.store.rollback(txn).await
        {
            return self.outage.hold_for(fault);
        }
        self.outage.hold_for(fault)
    }
}
