//! Failures of rows whose record the database has refused.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::store::Row;

use super::carried::Charge;

/// The failures of this process that the database has refused to record because of their messages. When the process has
/// such a row again, it records the failure instead of running the handler again.
#[derive(Debug, Default)]
pub(crate) struct Unrecorded(Mutex<HashMap<i64, Kept>>);

#[derive(Debug)]
struct Kept {
    charge: Charge,
    /// The row as it was when its handler failed.
    row: State,
    since: Instant,
}

/// The part of a row that changes if another process runs it, or an operator replays it.
#[derive(Debug, PartialEq, Eq)]
struct State {
    attempts: u32,
    starts: u32,
    breaks: u32,
    error: String,
}

/// The maximum number of failures that are kept. Their texts are up to 4,000 characters each.
const MOST: usize = 1000;

/// How long a failure is kept: for several times the longest delay of a refused row, because a row that has not come
/// back by then is with another process.
const KEPT: Duration = Duration::from_secs(300);

impl Unrecorded {
    /// Keeps the failure of a row. If too many are kept already, the row runs again.
    pub(crate) fn keep(&self, row: &Row, charge: Charge) {
        let mut kept = self.kept();
        kept.retain(|_, kept| kept.since.elapsed() < KEPT);
        if kept.len() < MOST {
            kept.insert(row.id, Kept { charge, row: State::of(row), since: Instant::now() });
        }
    }

    /// Takes the failure of a row, unless the row has changed since.
    pub(crate) fn take(&self, row: &Row) -> Option<Charge> {
        let kept = self.kept().remove(&row.id)?;
        (kept.since.elapsed() < KEPT && kept.row == State::of(row)).then_some(kept.charge)
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<i64, Kept>> {
        // The map is consistent at all times.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn of(row: &Row) -> Self {
        Self { attempts: row.attempts, starts: row.starts, breaks: row.breaks, error: row.error.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::store::{HandlerId, Identity};
    use crate::{Delivery, Fingerprint, Key};

    fn row(id: i64) -> Row {
        let identity = Identity { handler: HandlerId(1), key: Key::empty(), fingerprint: Fingerprint::none() };
        let mut row = Row::new(id, identity, String::new(), Delivery::new("orders", ""), SystemTime::UNIX_EPOCH);
        (row.attempts, row.starts, row.error) = (2, 1, "first".to_owned());
        row
    }

    fn charge() -> Charge {
        Charge { attempts: 3, next: Ok(Duration::ZERO), error: "failed".to_owned() }
    }

    #[test]
    fn a_failure_is_taken_once_and_for_its_own_row() {
        let unrecorded = Unrecorded::default();
        unrecorded.keep(&row(7), charge());
        assert!(unrecorded.take(&row(8)).is_none());
        assert_eq!(unrecorded.take(&row(7)).unwrap().attempts, 3);
        assert!(unrecorded.take(&row(7)).is_none());
    }

    #[test]
    fn a_row_that_has_changed_meanwhile_runs_again() {
        let unrecorded = Unrecorded::default();
        let changes: [(&str, fn(&mut Row)); 4] = [
            ("failed elsewhere", |row| row.attempts = 3),
            ("failed elsewhere, and replayed", |row| row.error = "second".to_owned()),
            ("ended another process", |row| row.starts = 2),
            ("lost its connection elsewhere", |row| row.breaks = 1),
        ];
        for (why, change) in changes {
            unrecorded.keep(&row(7), charge());
            let mut changed = row(7);
            change(&mut changed);
            assert!(unrecorded.take(&changed).is_none(), "{why}");
        }
    }

    #[test]
    fn an_old_failure_is_not_recorded() {
        let unrecorded = Unrecorded::default();
        unrecorded.keep(&row(7), charge());
        let long_ago = Instant::now().checked_sub(KEPT).unwrap();
        unrecorded.kept().get_mut(&7).unwrap().since = long_ago;
        assert!(unrecorded.take(&row(7)).is_none());
    }

    #[test]
    fn failures_are_kept_up_to_a_number_and_old_ones_make_room() {
        let unrecorded = Unrecorded::default();
        let most = i64::try_from(MOST).unwrap();
        (0..=most).for_each(|id| unrecorded.keep(&row(id), charge()));
        assert!(unrecorded.take(&row(most)).is_none());
        let long_ago = Instant::now().checked_sub(KEPT).unwrap();
        unrecorded.kept().values_mut().for_each(|kept| kept.since = long_ago);
        unrecorded.keep(&row(most), charge());
        assert!(unrecorded.take(&row(most)).is_some());
        assert!(unrecorded.kept().is_empty());
    }
}
