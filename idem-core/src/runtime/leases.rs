//! The leases of rows that were fetched and wait for their run.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use uuid::Uuid;

use crate::Store;
use crate::store::Row;

use super::pipeline::Pipeline;

/// The rows whose leases are extended every third of the lease: those of a batch, which wait for each other, a row whose codec
/// prepares, and one that waits for a connection. A row that runs singly needs no lease, because it is locked.
#[derive(Debug, Default)]
pub(crate) struct Leases(Mutex<Vec<Weak<Held>>>);

/// Rows that were fetched together, and whose leases are extended while this exists.
#[derive(Debug)]
pub(crate) struct Held {
    token: Uuid,
    ids: Vec<i64>,
}

impl Leases {
    /// Extends the leases of these rows, which were fetched together, until the returned value is dropped.
    #[must_use]
    pub(crate) fn hold<'r>(&self, rows: impl IntoIterator<Item = &'r Row>) -> Option<Arc<Held>> {
        let mut rows = rows.into_iter().peekable();
        let token = rows.peek()?.locked_by?;
        let held = Arc::new(Held { token, ids: rows.map(|row| row.id).collect() });
        let mut all = self.0.lock();
        all.retain(|held| held.strong_count() > 0);
        all.push(Arc::downgrade(&held));
        Some(held)
    }
}

impl<S: Store> Pipeline<S> {
    /// Extends the leases of held rows every third of the lease duration, one statement after another.
    pub(crate) async fn extend_leases(&self) -> Infallible {
        loop {
            tokio::time::sleep(self.settings.lease / 3).await;
            // One statement extends all rows that were fetched together.
            let mut by_token = HashMap::<_, Vec<i64>>::new();
            for held in self.leases.0.lock().iter().filter_map(Weak::upgrade) {
                by_token.entry(held.token).or_default().extend(&held.ids);
            }
            for (token, ids) in by_token {
                let _own = self.own_statements.lock().await;
                self.extended_rows(token, &ids).await;
            }
        }
    }

    /// Extends the leases of these rows, which were fetched together and wait for another run.
    pub(crate) async fn extend_rows(&self, rows: &[&Row]) {
        if let Some(token) = rows.first().and_then(|row| row.locked_by) {
            let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
            self.extended_rows(token, &ids).await;
        }
    }

    /// Extends leases. An error is only logged: a lost lease is detected when the row starts to run.
    async fn extended_rows(&self, token: Uuid, ids: &[i64]) {
        if let Err(fault) = self.store.extend(token, ids, self.settings.lease).await {
            self.outage.report(&fault);
            tracing::debug!(error = %fault, "the leases of rows that wait were not extended");
        }
    }
}
