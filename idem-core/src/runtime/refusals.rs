//! Rows of the inbox that the database refuses to start.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::waits::refused_wait;

/// How often this process has seen each row refused. Such rows run alone, and wait longer each time.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<HashMap<i64, usize>>);

/// The maximum number of remembered rows. Rows that other processes finish are never removed individually.
const MOST: usize = 10_000;

impl Refusals {
    /// Records a refusal of this row. Returns the number of refusals and the delay before the next try.
    pub(crate) fn count(&self, id: i64) -> (usize, Duration) {
        let mut rows = self.rows();
        if rows.len() >= MOST && !rows.contains_key(&id) {
            rows.clear();
        }
        let tries = rows.entry(id).or_default();
        let wait = refused_wait(*tries);
        *tries += 1;
        (*tries, wait)
    }

    /// Removes a row that has an outcome.
    pub(crate) fn forget(&self, id: i64) {
        self.rows().remove(&id);
    }

    /// Returns whether the row was refused and has had no outcome since.
    pub(crate) fn is_refused(&self, id: i64) -> bool {
        self.rows().contains_key(&id)
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<i64, usize>> {
        // A map of numbers is consistent at all times.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
