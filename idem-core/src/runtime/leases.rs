//! The leases of rows that were taken and wait for their run.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::store::Row;

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
    pub(crate) fn hold(&self, rows: &[Row]) -> Held<'_> {
        let rows: Vec<(i64, Uuid)> = rows.iter().filter_map(|row| Some((row.id, row.locked_by?))).collect();
        let mut held = self.rows();
        rows.iter().for_each(|row| *held.entry(*row).or_default() += 1);
        drop(held);
        Held { leases: self, rows }
    }

    /// Returns the held rows by the token with which they were taken.
    pub(super) fn by_token(&self) -> HashMap<Uuid, Vec<i64>> {
        let mut by_token = HashMap::<_, Vec<i64>>::new();
        self.rows().keys().for_each(|(id, token)| by_token.entry(*token).or_default().push(*id));
        by_token
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<(i64, Uuid), usize>> {
        // A map of numbers is consistent at all times.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut rows = self.leases.rows();
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
