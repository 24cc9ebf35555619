//! The leases of rows, which are extended for as long as they wait here for their run.

use std::convert::Infallible;

use uuid::Uuid;

use crate::Store;
use crate::store::Row;

use super::pipeline::Pipeline;

impl<S: Store> Pipeline<S> {
    /// Extends what is held, at a third of the lease, one statement after another.
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
        if let Some(token) = rows.first().and_then(|row| row.token) {
            let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
            self.extended_rows(token, &ids).await;
        }
    }

    /// A row whose lease is lost is found to be so when it begins; so an error is only told.
    async fn extended_rows(&self, token: Uuid, ids: &[i64]) {
        match self.store.extend(token, ids, self.settings.lease).await {
            Ok(()) => {}
            Err(fault) => {
                self.outage.report(&fault);
                tracing::debug!(%fault, "the leases of rows that wait were not extended");
            }
        }
    }
}
