//! Replayed rows that belonged to no handler, and that several handlers take now.

use std::slice;

use crate::record::{Shares, committed};
use crate::runtime::{Pipeline, Shared};
use crate::store::{Row, StoreError};
use crate::{Outcome, Store};

impl<S: Store> Pipeline<S> {
    /// Replaces a row without a key by one for each of its handlers. Reports the outcome of each of them.
    pub(super) async fn readmit_to_all(&self, row: &Row, shares: &Shares) -> Option<Outcome> {
        if shares.unprepared {
            return self.leave_to_prepare_row(row).await;
        }
        match self.replace(row, shares).await {
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
