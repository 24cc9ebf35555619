//! Failures of rows whose record the database has refused.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::store::Row;

use super::carried::Charge;

/// The failures of a worker that the database has refused to record because of their messages. When the worker has such
/// a row again, it records the failure instead of running the handler again.
#[derive(Debug, Default)]
pub(crate) struct Unrecorded(Mutex<HashMap<i64, Kept>>);

#[derive(Debug)]
struct Kept {
    charge: Charge,
    /// The row as it was when its handler failed.
    row: State,
    /// When the handler failed.
    since: Instant,
}

/// The part of a row that changes if another process runs it, or an operator replays it.
#[derive(Debug, PartialEq, Eq)]
struct State {
    attempts: u32,
    crash_count: u32,
    lost_connections: u32,
    error: String,
    /// Another row can have the same id if the table was emptied or restored.
    created_at: SystemTime,
}

/// The maximum number of failures that are kept, with two texts of up to 4,000 characters each.
const MOST: usize = 1000;

/// How long a failure is kept: for several times the longest delay of a refused row. After that the handler runs again,
/// since a run that succeeds may write nothing that the database refuses.
const KEPT: Duration = Duration::from_secs(300);

impl Unrecorded {
    /// Keeps the failure of a row whose handler failed at this time. If too many are kept already, the row runs again.
    pub(crate) fn keep(&self, row: &Row, charge: Charge, since: Instant) {
        // After a replay a row has no attempt and the error of its last failure, and a second replay would not change it.
        if row.attempts == 0 && !row.error.is_empty() {
            return;
        }
        let mut kept = self.kept();
        kept.retain(|_, kept| kept.since.elapsed() < KEPT);
        if kept.len() < MOST {
            kept.insert(row.id, Kept { charge, row: State::of(row), since });
        }
    }

    /// Takes the failure of a row, and when its handler failed, unless the row has changed since.
    pub(crate) fn take(&self, row: &Row) -> Option<(Charge, Instant)> {
        let kept = self.kept().remove(&row.id)?;
        (kept.since.elapsed() < KEPT && kept.row == State::of(row)).then_some((kept.charge, kept.since))
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<i64, Kept>> {
        // The map is consistent at all times.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn of(row: &Row) -> Self {
        Self {
            attempts: row.attempts,
            crash_count: row.crash_count,
            lost_connections: row.lost_connections,
            error: row.error.clone(),
            created_at: row.created_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{HandlerId, Identity};
    use crate::{Delivery, Fingerprint, Key};

    fn row(id: i64) -> Row {
        let identity = Identity { handler: HandlerId(1), key: Key::empty(), fingerprint: Fingerprint::none() };
        let mut row = Row::new(id, identity, String::new(), Delivery::new("orders", ""), SystemTime::UNIX_EPOCH);
        (row.attempts, row.crash_count, row.error) = (2, 1, "first".to_owned());
        row
    }

    type Change = fn(&mut Row);

    fn charge() -> Charge {
        Charge { attempts: 3, next: Ok(Duration::ZERO), error: "failed".to_owned() }
    }

    #[test]
    fn a_failure_is_taken_once_and_for_its_own_row() {
        let unrecorded = Unrecorded::default();
        unrecorded.keep(&row(7), charge(), Instant::now());
        assert!(unrecorded.take(&row(8)).is_none());
        assert_eq!(unrecorded.take(&row(7)).unwrap().0.attempts, 3);
        assert!(unrecorded.take(&row(7)).is_none());
    }

    #[test]
    fn a_row_that_has_changed_meanwhile_runs_again() {
        let unrecorded = Unrecorded::default();
        let changes: [(&str, Change); 6] = [
            ("failed elsewhere", |row| row.attempts = 3),
            ("was replayed", |row| row.attempts = 0),
            ("failed elsewhere by another error", |row| row.error = "second".to_owned()),
            ("is another row", |row| row.created_at += Duration::from_secs(1)),
            ("ended another process", |row| row.crash_count = 2),
            ("lost its connection elsewhere", |row| row.lost_connections = 1),
        ];
        for (why, change) in changes {
            unrecorded.keep(&row(7), charge(), Instant::now());
            let mut changed = row(7);
            change(&mut changed);
            assert!(unrecorded.take(&changed).is_none(), "{why}");
        }
    }

    #[test]
    fn a_failure_of_a_replayed_row_is_not_kept() {
        let unrecorded = Unrecorded::default();
        let replayed = Row { attempts: 0, ..row(7) };
        unrecorded.keep(&replayed, charge(), Instant::now());
        assert!(unrecorded.take(&replayed).is_none());
    }

    #[test]
    fn an_old_failure_is_not_recorded() {
        let unrecorded = Unrecorded::default();
        unrecorded.keep(&row(7), charge(), Instant::now().checked_sub(KEPT).unwrap());
        assert!(unrecorded.take(&row(7)).is_none());
    }

    #[test]
    fn failures_are_kept_up_to_a_number_and_old_ones_make_room() {
        let unrecorded = Unrecorded::default();
        let most = i64::try_from(MOST).unwrap();
        (0..=most).for_each(|id| unrecorded.keep(&row(id), charge(), Instant::now()));
        assert!(unrecorded.take(&row(most)).is_none());
        let long_ago = Instant::now().checked_sub(KEPT).unwrap();
        unrecorded.kept().values_mut().for_each(|kept| kept.since = long_ago);
        unrecorded.keep(&row(most), charge(), Instant::now());
        assert!(unrecorded.take(&row(most)).is_some());
        assert!(unrecorded.kept().is_empty());
    }
}
