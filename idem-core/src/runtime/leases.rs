//! The leases of rows that were taken and wait for their run.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::store::Row;

/// The rows whose leases are extended every third of the lease: those of a batch, which wait for each other, and a
/// suspect that waits until its process is idle. A row that runs singly needs no lease, because it is locked.
#[derive(Debug, Default)]
pub(crate) struct Leases(Mutex<HashMap<i64, Uuid>>);

/// Rows whose leases are extended while this exists.
#[must_use]
pub(crate) struct Held<'a> {
    leases: &'a Leases,
    rows: Vec<(i64, Uuid)>,
}

impl Leases {
    /// Extends the leases of these rows from now on.
    pub(crate) fn hold(&self, rows: &[Row]) -> Held<'_> {
        let rows: Vec<(i64, Uuid)> = rows.iter().filter_map(|row| Some((row.id, row.token?))).collect();
        self.rows().extend(rows.iter().copied());
        Held { leases: self, rows }
    }

    /// Returns the held rows by the token with which they were taken.
    pub(super) fn by_token(&self) -> HashMap<Uuid, Vec<i64>> {
        let mut by_token = HashMap::<_, Vec<i64>>::new();
        self.rows().iter().for_each(|(id, token)| by_token.entry(*token).or_default().push(*id));
        by_token
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<i64, Uuid>> {
        // A map of numbers is consistent at all times.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut rows = self.leases.rows();
        for (id, token) in &self.rows {
            // A lost row may have been taken again by this process.
            if rows.get(id) == Some(token) {
                rows.remove(id);
            }
        }
    }
}
