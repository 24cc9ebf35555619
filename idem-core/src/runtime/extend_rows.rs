//! Extension of the leases of rows while they wait here for their run.

use std::convert::Infallible;

use uuid::Uuid;

use crate::Store;
use crate::store::Row;

use super::pipeline::Pipeline;

impl<S: Store> Pipeline<S> {
    /// Extends the leases of held rows every third of the lease duration, one statement after another.
    pub(crate) async fn extend_leases(&self) -> Infallible {
        loop {
            tokio::time::sleep(self.settings.lease / 3).await;
            for (token, ids) in self.leases.by_token() {
                let _own = self.own_statements.lock().await;
                self.extended_rows(token, &ids).await;
            }
        }
    }

    /// Extends the leases of these rows, which wait for another run.
    pub(crate) async fn extend_rows(&self, rows: &[Row]) {
        if let Some(token) = rows.first().and_then(|row| row.locked_by) {
            let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
            self.extended_rows(token, &ids).await;
        }
    }

    /// Extends leases. An error is only logged: a lost lease is detected when the row starts to run.
    async fn extended_rows(&self, token: Uuid, ids: &[i64]) {
        match self.store.extend(token, ids, self.settings.lease).await {
            Ok(()) => {}
            Err(fault) => {
                self.outage.report(&fault);
                tracing::debug!(error = %fault, "the leases of rows that wait were not extended");
            }
        }
    }
}
