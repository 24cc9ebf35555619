//! Replayed rows that have no key. They go back through decode and key.

use std::slice;
use std::time::Duration;

use crate::runtime::{Pipeline, Running, Shared};
use crate::store::{Row, StoreError};
use crate::take_over::{Shares, committed};
use crate::{Outcome, Store};

impl<S: Store> Pipeline<S> {
    /// Replaces a row without a key by one with a claim for each handler that takes it now, which runs like any other; or
    /// its message is a duplicate or conflict of one that was taken over meanwhile. Reports the outcome of each handler.
    pub(super) async fn readmit(&self, row: &Row, running: &Running) -> Option<Outcome> {
        let Some(user_code) = running.user_code() else { return self.snooze(row, Duration::ZERO).await };
        let routes = self.routes.takers_of_row(row);
        let mut shares = self.share(&row.delivery, &routes);
        drop(user_code);
        if shares.unprepared {
            return self.leave_to_prepare_row(row).await;
        }
        // One that no other handler can take either is dead as it is.
        let unfit = match &routes[..] {
            [] => Some(self.routes.untaken(&row.delivery)),
            [_] => shares.unfit.pop().map(|(_, unfit)| unfit),
            _ => None,
        };
        if let Some(unfit) = unfit {
            return self.reject(row, unfit.reason, unfit.error).await;
        }
        match self.replace(row, &shares).await {
            Ok(Some(Shared { outcomes, .. })) => {
                for (handler, outcome) in outcomes {
                    self.emit(self.routes.meters(handler), &row.delivery, &outcome);
                }
                None
            }
            Ok(None) => self.refund_start(row).await,
            Err(fault) => self.give_back(row, fault).await,
        }
    }

    /// Returns `None` if another process has the row now.
    async fn replace(&self, row: &Row, shares: &Shares) -> Result<Option<Shared>, StoreError> {
        let held = self.leases.hold(slice::from_ref(row));
        let mut txn = self.store.begin(self.settings.handler_timeout).await?;
        drop(held);
        let written = self.write_shares(&mut txn, &row.delivery, shares).await?;
        if written.is_gone() {
            return Err(StoreError::LockTimeout);
        }
        if !self.store.remove(&mut txn, row).await? {
            self.store.rollback(txn).await?;
            return Ok(None);
        }
        committed(self.store.commit(txn).await)?;
        Ok(Some(self.shared(&row.delivery, shares, &written)))
    }
}
