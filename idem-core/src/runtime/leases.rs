//! The leases of rows that were taken and wait for their run.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::Store;
use crate::runtime::Pipeline;
use crate::store::Row;

/// The rows whose leases are extended at a third: those of a batch, which wait for each other, and a suspect that waits
/// until its process is quiet. A row that runs by itself needs no lease: it is locked.
#[derive(Debug, Default)]
pub(crate) struct Leases(Mutex<HashMap<i64, Uuid>>);

/// Rows whose leases are extended while this lives.
#[must_use]
pub(crate) struct Held<'a> {
    leases: &'a Leases,
    rows: Vec<(i64, Uuid)>,
}

impl Leases {
    /// Extends the leases of these from now on.
    pub(crate) fn hold(&self, rows: &[Row]) -> Held<'_> {
        let rows: Vec<(i64, Uuid)> = rows.iter().filter_map(|row| Some((row.id, row.token?))).collect();
        self.rows().extend(rows.iter().copied());
        Held { leases: self, rows }
    }

    /// The rows that are held, by the token of their take.
    fn by_token(&self) -> HashMap<Uuid, Vec<i64>> {
        let mut by_token = HashMap::<_, Vec<i64>>::new();
        self.rows().iter().for_each(|(id, token)| by_token.entry(*token).or_default().push(*id));
        by_token
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<i64, Uuid>> {
        // A map of numbers is whole at all times.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut rows = self.leases.rows();
        for (id, token) in &self.rows {
            // A row that was lost may have been taken here again.
            if rows.get(id) == Some(token) {
                rows.remove(id);
            }
        }
    }
}

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
