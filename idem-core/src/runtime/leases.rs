//! The leases of rows that were taken and wait for their run.

use std::collections::HashMap;
use std::convert::Infallible;

use parking_lot::Mutex;
use uuid::Uuid;

use crate::Store;
use crate::store::Row;

use super::pipeline::Pipeline;

/// The rows whose leases are extended every third of the lease, and how often each is held: those of a batch, which
/// wait for each other, a suspect that waits until its process is idle, a row whose codec prepares, and one that waits
/// for a connection. A row that runs singly needs no lease, because it is locked.
#[derive(Debug, Default)]
pub(crate) struct Leases(Mutex<HashMap<(i64, Uuid), usize>>);

/// Rows whose leases are extended while this exists.
#[must_use]
pub(crate) struct Held<'a> {
    leases: &'a Leases,
    rows: Vec<(i64, Uuid)>,
}

impl Leases {
    /// Extends the leases of these rows from now on.
    pub(crate) fn hold<'r>(&self, rows: impl IntoIterator<Item = &'r Row>) -> Held<'_> {
        let rows: Vec<(i64, Uuid)> = rows.into_iter().filter_map(|row| Some((row.id, row.locked_by?))).collect();
        let mut held = self.0.lock();
        rows.iter().for_each(|row| *held.entry(*row).or_default() += 1);
        drop(held);
        Held { leases: self, rows }
    }

    /// Returns the held rows by the token with which they were taken.
    fn by_token(&self) -> HashMap<Uuid, Vec<i64>> {
        let mut by_token = HashMap::<_, Vec<i64>>::new();
        self.0.lock().keys().for_each(|(id, token)| by_token.entry(*token).or_default().push(*id));
        by_token
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut rows = self.leases.0.lock();
        for row in &self.rows {
            // A row that leaves its batch for its codec's preparation is held twice for a while.
            if let Some(times) = rows.get_mut(row) {
                *times -= 1;
                if *times == 0 {
                    rows.remove(row);
                }
            }
        }
    }
}

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

    /// Extends the leases of these rows, which were taken together and wait for another run.
    pub(crate) async fn extend_rows(&self, rows: &[&Row]) {
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
