//! Deliveries that are kept unsettled for a while.

use crate::Store;
use crate::store::StoreError;

use super::outage::Outage;
use super::pipeline::Pipeline;
use super::step::{Hold, Step};
use super::waits::{hold_wait, refused_wait};

impl Outage {
    /// What a fault of one of our own statements means for a delivery.
    pub(crate) fn hold_for(&self, fault: StoreError) -> Step {
        self.report(&fault);
        match fault {
            StoreError::Message(error) => Step::Refused { error, ran: false },
            fault => Step::Hold(Hold::from(&fault)),
        }
    }
}

impl<S: Store> Pipeline<S> {
    /// Keeps a delivery for a while, without connection, row or transaction. The drain ends it.
    pub(crate) async fn hold(&self, hold: Hold, holds: usize) {
        let wait = async {
            if hold != Hold::Busy && self.outage.over_or_trial().await {
                return;
            }
            match hold {
                Hold::Unfit => self.health.resumed().await,
                Hold::Again => {}
                Hold::Refused => tokio::time::sleep(refused_wait(holds)).await,
                _ => tokio::time::sleep(hold_wait(holds)).await,
            }
        };
        tokio::select! {
            () = wait => {}
            () = self.draining.cancelled() => {}
        }
    }

    /// Gives a transaction up after a fault. The connection is of use again if it answers.
    pub(crate) async fn abandon(&self, txn: S::Txn, fault: StoreError) -> Step {
        if fault.is_answered()
            && let Err(fault) = self.store.rollback(txn).await
        {
            return self.outage.hold_for(fault);
        }
        self.outage.hold_for(fault)
    }
}
