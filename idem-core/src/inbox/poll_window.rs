//! How far back a poll or fetch searches the inbox: a database may have to skip all rows that were fetched since the
//! oldest of its open snapshots. A report that runs for ten minutes holds a snapshot, and makes that a long way at each
//! poll. So a statement that makes a row due sets `run_at` to now or later: a bounded search would miss the row.

use std::time::{Duration, Instant};

use crate::store::Row;

/// How often all rows are searched. Those that a bounded search does not find wait for that long: rows that were committed
/// late, and rows whose holder has died. A worker that polls less often always searches all of them.
const EVERY: Duration = Duration::from_secs(5);
/// How much further back a bounded search goes than the time before which no due row is left: transactions that store
/// rows commit some time after they write.
const MARGIN: Duration = Duration::from_secs(3);

/// The time before which no due row of one kind is left: of ordinary rows, orphaned rows, or calls. It is an instant of this
/// process; the database receives only its distance from now.
#[derive(Debug)]
pub(crate) struct PollWindow {
    poll: Duration,
    /// When all rows of the kind were last searched.
    all: Option<Instant>,
    /// No row that was due before this is left, as far as the last search could see.
    left: Option<Instant>,
}

impl PollWindow {
    /// No row was searched yet. `poll`: how often rows are searched.
    pub(crate) fn new(poll: Duration) -> Self {
        Self { poll, all: None, left: None }
    }

    /// Returns how far back a search that begins now has to go.
    pub(crate) fn since(&mut self, now: Instant) -> Option<Duration> {
        if self.poll >= EVERY || self.all.is_none_or(|at| now.duration_since(at) >= EVERY) {
            (self.all, self.left) = (Some(now), None);
        }
        self.left.map(|left| now.saturating_duration_since(left) + MARGIN)
    }

    /// Records that a search that began at this time returned these rows, the oldest that were due.
    pub(crate) fn found(&mut self, began: Instant, rows: &[Row]) {
        let longest = rows.iter().map(|row| row.waited.unwrap_or(Duration::MAX)).max().unwrap_or_default();
        self.left = began.checked_sub(longest);
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::store::{HandlerId, Identity};
    use crate::{Delivery, Fingerprint, Key};

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn everything_is_searched_every_few_seconds_whatever_is_found() {
        let begun = Instant::now();
        let mut window = PollWindow::new(SECOND);
        for round in 0..3_u32 {
            let start = begun + round * 5 * SECOND;
            assert_eq!(window.since(start), None);
            assert_eq!(window.since(start), None, "the first one had no answer, or its rows are fetched now");
            window.found(start, &[]);
            for second in 1..5_u32 {
                assert_eq!(window.since(start + second * SECOND), Some(second * SECOND + MARGIN));
            }
        }
    }

    #[test]
    fn a_worker_that_polls_seldom_searches_everything() {
        let (now, mut window) = (Instant::now(), PollWindow::new(HOUR));
        for second in 0..3_u32 {
            assert_eq!(window.since(now + second * SECOND), None);
            window.found(now + second * SECOND, &[]);
        }
    }

    #[test]
    fn a_fetch_of_as_many_as_its_limit_leaves_what_was_due_later() {
        let waited = |waited| {
            let identity = Identity { handler: HandlerId(1), key: Key::empty(), fingerprint: Fingerprint::none() };
            let mut row = Row::new(7, identity, String::new(), Delivery::new("orders", ""), SystemTime::UNIX_EPOCH);
            row.waited = waited;
            row
        };
        let now = Instant::now() + HOUR;
        let mut window = PollWindow::new(SECOND);
        window.since(now);
        window.found(now, &[3_u32, 60, 7].map(|seconds| waited(Some(seconds * SECOND))));
        assert_eq!(window.since(now), Some(60 * SECOND + MARGIN));
        window.found(now, &[waited(None)]);
        assert_eq!(window.since(now), None, "nobody knows");
    }
}
