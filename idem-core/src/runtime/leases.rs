//! The leases of rows that were taken and wait for their run.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

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
    pub(super) fn by_token(&self) -> HashMap<Uuid, Vec<i64>> {
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
