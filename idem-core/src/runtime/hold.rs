//! Deliveries that are kept unsettled for a while.

use crate::Store;
use crate::store::Fault;

use super::{Pipeline, Step, hold_wait, refused_wait};

/// Why a delivery is kept unsettled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Another transaction has the claim.
    Busy,
    /// The database refuses what is written for it, and works for others.
    Refused,
    /// There was no answer to a statement of idem's own.
    Lost,
    /// The database cannot be used.
    Outage,
    /// The connection was lost under the handler, or COMMIT was not answered.
    Broke,
    /// It is unfit, and consumption is paused because too many were.
    Unfit,
    /// Nothing is in the way any more.
    Again,
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

    /// What a fault of one of our own statements means for a delivery.
    pub(crate) fn hold_for(&self, fault: Fault) -> Step {
        self.outage.report(&fault);
        match fault {
            Fault::Message(error) => Step::Refused { error, ran: false },
            fault => Step::Hold(Hold::from(&fault)),
        }
    }

    /// Gives a transaction up after a fault. The connection is of use again if it answers.
    pub(crate) async fn abandon(&self, txn: S::Txn, fault: Fault) -> Step {
        if fault.is_answered()
            && let Err(fault) = self.store.rollback(txn).await
        {
            return self.hold_for(fault);
        }
        self.hold_for(fault)
    }
}
