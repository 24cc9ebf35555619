//! Deliveries that are held unsettled for a while, or wait until something happens.

use std::time::Duration;

use crate::store::StoreError;
use crate::{Acker, Store};

use super::extend::kept;
use super::outage::Outage;
use super::outbox_gate::OutboxGate;
use super::pipeline::Pipeline;
use super::refused::UNANSWERED;
use super::step::{HoldReason, Progress};
use super::waits::{busy_wait, hold_wait, refused_wait};

/// How often a waiting delivery is checked for having been lost.
const LOOK: Duration = Duration::from_secs(1);

impl Outage {
    /// Returns what a failure of one of idem's own statements means for a delivery.
    pub(crate) fn hold_for(&self, fault: StoreError) -> Progress {
        self.report(&fault);
        match fault {
            StoreError::Message(error) => Progress::Refused(error),
            fault => Progress::Hold(HoldReason::from(&fault)),
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

    /// Holds a delivery for a while, without a connection, row or transaction. The drain ends the wait.
    pub(crate) async fn hold(&self, hold: HoldReason, holds: usize) {
        if hold == HoldReason::Busy && holds >= UNANSWERED {
            // Each claim may be held up: the table may be locked, or the database read-only.
            self.outage.ask();
        }
        let wait = async {
            if hold == HoldReason::Again {
                // A trial has to show whether the database is available, and this delivery may wait for a suspect first.
                return self.outage.over().await;
            }
            if hold != HoldReason::Busy && self.outage.over_or_trial().await {
                return;
            }
            match hold {
                HoldReason::Unfit => self.health.resumed().await,
                HoldReason::Busy => tokio::time::sleep(busy_wait(holds)).await,
                HoldReason::Refused => tokio::time::sleep(refused_wait(holds)).await,
                _ => tokio::time::sleep(hold_wait(holds)).await,
            }
        };
        tokio::select! {
            () = wait => {}
            () = self.draining.begun() => {}
        }
    }

    /// Waits for `what`. Returns `false` if the worker drains or the delivery is lost before that.
    pub(crate) async fn unless_over<A: Acker>(&self, acker: &mut A, what: impl Future<Output = ()>) -> bool {
        tokio::select! {
            biased;
            () = self.draining.begun() => false,
            () = what => true,
            () = kept(acker, LOOK) => false,
        }
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
