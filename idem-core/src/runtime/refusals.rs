//! Rows of the inbox that could not start: the database refuses them, their codec has to prepare, or another version of the
//! service has made their external call.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::waits::refused_wait;

/// How often this process has seen each row refused. Such rows run alone, and wait longer each time.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<HashMap<i64, Refusal>>);

#[derive(Debug)]
struct Refusal {
    tries: usize,
    last: Instant,
    preparation: RowPreparation,
}

/// The state of the codec's preparation for a row, as far as this process knows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum RowPreparation {
    /// The codec has not requested it.
    #[default]
    None,
    /// The codec has requested it, and it has not succeeded since.
    Wanted,
    /// It has succeeded, and the codec has not decoded the row since.
    Done,
}

/// The maximum number of remembered rows. Rows that other processes finish are never removed individually.
const MOST: usize = 10_000;

/// Longer than any delay.
const REMEMBERED: Duration = Duration::from_secs(600);

impl Refusals {
    /// Records a refusal of this row. Returns the number of refusals and the delay before the next try.
    pub(crate) fn count(&self, id: i64) -> (usize, Duration) {
        let mut rows = self.rows();
        let Some(row) = entry(&mut rows, id) else { return (1, refused_wait(usize::MAX)) };
        let wait = refused_wait(row.tries);
        row.tries += 1;
        (row.tries, wait)
    }

    /// Removes a row that has an outcome.
    pub(crate) fn forget(&self, id: i64) {
        self.rows().remove(&id);
    }

    /// Returns whether the row was refused and has had no outcome since.
    pub(crate) fn is_refused(&self, id: i64) -> bool {
        self.rows().contains_key(&id)
    }

    pub(crate) fn preparation(&self, id: i64) -> RowPreparation {
        self.rows().get(&id).map_or(RowPreparation::None, |row| row.preparation)
    }

    /// Records what has become known about the codec's preparation for a row. Returns what was known before.
    pub(crate) fn set_preparation(&self, id: i64, preparation: RowPreparation) -> RowPreparation {
        let mut rows = self.rows();
        entry(&mut rows, id).map_or_else(Default::default, |row| std::mem::replace(&mut row.preparation, preparation))
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<i64, Refusal>> {
        // The map is consistent at all times.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the entry of a row. `None` if there is no room for another one: then the row waits for the longest delay,
/// and those that are remembered keep theirs. Room is made only by rows that were refused so long ago that they must
/// have ended elsewhere.
fn entry(rows: &mut HashMap<i64, Refusal>, id: i64) -> Option<&mut Refusal> {
    if rows.len() >= MOST && !rows.contains_key(&id) {
        rows.retain(|_, row| row.last.elapsed() < REMEMBERED);
        if rows.len() >= MOST {
            return None;
        }
    }
    let now = Instant::now();
    let row = rows.entry(id).or_insert(Refusal { tries: 0, last: now, preparation: RowPreparation::None });
    row.last = now;
    Some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_remembered_rows_a_refused_row_waits_longest_and_others_as_before() {
        let refusals = Refusals::default();
        let most = i64::try_from(MOST).unwrap();
        for id in 0..most {
            refusals.count(id);
        }
        for _ in 0..2 {
            let (tries, wait) = refusals.count(most);
            assert!(tries == 1 && wait >= Duration::from_secs(30), "{wait:?}");
        }
        assert!((0..most).all(|id| refusals.count(id).0 == 2));
        refusals.forget(0);
        assert!(refusals.count(most).1 < Duration::from_secs(1), "there is room for it");
    }
}
