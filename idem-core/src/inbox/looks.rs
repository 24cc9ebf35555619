//! How far back a poll or take searches the inbox: a database may have to skip all rows that were taken since the
//! oldest of its open snapshots. A report that runs for ten minutes holds a snapshot, and makes that a long way at each
//! poll. So a statement that makes a row due sets `run_at` to now or later: a bounded search would miss the row.

use std::time::{Duration, Instant};

use crate::store::{LookBack, Row};

/// How often the whole inbox is searched. Rows that a bounded search does not find wait for that long: those that were
/// committed late, and those whose holder has died.
const EVERY: Duration = Duration::from_secs(5);
/// How much further back a bounded search goes than the time before which no due row is left: transactions that store
/// rows commit some time after they write.
const MARGIN: Duration = Duration::from_secs(3);
/// How long the loop of calls rests if the whole inbox should have been searched before, as while the outbox is full.
const OVERDUE: Duration = Duration::from_secs(1);

/// The times before which no due row is left. They are instants of this process; the database receives only their
/// distance from now. The loop of rows and that of calls each have their own.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// When the whole inbox was last searched.
    everything: Option<Instant>,
    /// Whether a take of calls has left out a part of the inbox since.
    left_out: bool,
    /// No ordinary row that was due before this is left, as far as the last search could see.
    ordinary: Option<Instant>,
    /// The same for suspects.
    suspect: Option<Instant>,
    /// The same for rows in their call phase.
    calls: Option<Instant>,
}

impl Looks {
    /// Returns how far back the next poll has to search.
    pub(super) fn due(&mut self, now: Instant) -> LookBack {
        self.begin(now);
        LookBack { ordinary: back(self.ordinary, now), suspect: back(self.suspect, now) }
    }

    /// Returns how far back the next take of ordinary rows has to search.
    pub(super) fn take(&self, now: Instant) -> Option<Duration> {
        back(self.ordinary, now)
    }

    /// Returns how far back the next take of a suspect has to search.
    pub(super) fn take_suspect(&self, now: Instant) -> Option<Duration> {
        back(self.suspect, now)
    }

    /// Returns how far back the next take of calls has to search. No poll comes before it.
    pub(crate) fn take_calls(&mut self, now: Instant) -> Option<Duration> {
        self.begin(now);
        let since = back(self.calls, now);
        self.left_out |= since.is_some();
        since
    }

    /// Returns for how long the loop of calls may rest: for the poll interval, or, if a take has left out a part of the
    /// inbox, until all of it is to be searched.
    pub(crate) fn rest(&self, poll: Duration, now: Instant) -> Duration {
        let left = self.everything.map(|at| EVERY.saturating_sub(now.saturating_duration_since(at)).max(OVERDUE));
        left.filter(|_| self.left_out).map_or(poll, |left| poll.min(left))
    }

    /// Records whether a poll that began at this time found ordinary rows and suspects.
    pub(super) fn polled(&mut self, began: Instant, ordinary: bool, suspect: bool) {
        if !ordinary {
            self.ordinary = Some(began);
        }
        if !suspect {
            self.suspect = Some(began);
        }
    }

    /// Records that a take of ordinary rows that began at this time returned these, the oldest that were due.
    pub(super) fn taken(&mut self, began: Instant, rows: &[Row]) {
        self.ordinary = oldest(began, rows);
    }

    /// Records that a take of calls that began at this time returned these, the oldest that were due.
    pub(crate) fn calls_taken(&mut self, began: Instant, rows: &[Row]) {
        self.calls = oldest(began, rows);
    }

    /// Lets everything be searched if it is time for that.
    fn begin(&mut self, now: Instant) {
        if self.everything.is_none_or(|at| now.duration_since(at) >= EVERY) {
            *self = Self { everything: Some(now), ..Self::default() };
        }
    }
}

/// Returns the time before which no row was due when a take that began at this time returned these, the oldest ones.
fn oldest(began: Instant, rows: &[Row]) -> Option<Instant> {
    let longest = rows.iter().map(|row| row.waited.unwrap_or(Duration::MAX)).max().unwrap_or_default();
    began.checked_sub(longest)
}

fn back(from: Option<Instant>, now: Instant) -> Option<Duration> {
    from.map(|from| now.saturating_duration_since(from) + MARGIN)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::store::{HandlerId, Identity};
    use crate::{Delivery, Fingerprint, Key};

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn everything_is_looked_at_every_few_seconds_whatever_is_found() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut looks = Looks::default();
        for round in 0..3 {
            let start = round * 5;
            assert_eq!(looks.due(at(start)), LookBack::default());
            let takes = [looks.take(at(start)), looks.take_suspect(at(start))];
            assert_eq!(takes, [None, None], "what an unbounded poll has found is taken by an unbounded take");
            looks.polled(at(start), false, false);
            for second in 1..5 {
                let bound = Some(Duration::from_secs(second) + MARGIN);
                assert_eq!(looks.due(at(start + second)), LookBack { ordinary: bound, suspect: bound });
                assert_eq!([looks.take(at(start + second)), looks.take_suspect(at(start + second))], [bound, bound]);
            }
        }
    }

    #[test]
    fn all_calls_are_looked_for_every_few_seconds_whatever_is_found() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut looks = Looks::default();
        for round in 0..3 {
            let start = round * 5;
            assert_eq!(looks.take_calls(at(start)), None);
            assert_eq!(looks.take_calls(at(start)), None, "the first one had no answer");
            assert_eq!(looks.rest(HOUR, at(start)), HOUR, "nothing is left out");
            looks.calls_taken(at(start), &[]);
            for second in 1..5 {
                assert_eq!(looks.take_calls(at(start + second)), Some(Duration::from_secs(second) + MARGIN));
                assert_eq!(looks.rest(HOUR, at(start + second)), Duration::from_secs(5 - second));
            }
            assert_eq!(looks.rest(Duration::from_millis(1), at(start + 1)), Duration::from_millis(1));
            assert_eq!(looks.rest(HOUR, at(start + 6)), OVERDUE, "the loop had other reasons not to look");
        }
    }

    #[test]
    fn a_bounded_look_goes_back_to_the_oldest_that_the_last_take_has_found() {
        let now = Instant::now();
        let mut looks = Looks::default();
        looks.due(now);
        looks.polled(now, true, true);
        assert_eq!(looks.take(now), None);
        looks.taken(now, &[]);
        assert_eq!(
            looks.due(now),
            LookBack { ordinary: Some(MARGIN), suspect: None },
            "suspects are still to be found"
        );
    }

    #[test]
    fn a_take_of_as_many_as_its_limit_leaves_what_was_due_later() {
        let waited = |waited| {
            let identity = Identity { handler: HandlerId(1), key: Key::empty(), fingerprint: Fingerprint::none() };
            let mut row = Row::new(7, identity, String::new(), Delivery::new("orders", ""), SystemTime::UNIX_EPOCH);
            row.waited = waited;
            row
        };
        let now = Instant::now() + HOUR;
        let mut looks = Looks::default();
        looks.due(now);
        let rows = [3, 60, 7].map(|seconds| waited(Some(Duration::from_secs(seconds))));
        looks.taken(now, &rows);
        looks.calls_taken(now, &rows);
        let bound = Some(Duration::from_secs(60) + MARGIN);
        assert_eq!([looks.take(now), looks.take_calls(now)], [bound, bound]);
        looks.calls_taken(now, &[waited(None)]);
        assert_eq!(looks.take_calls(now), None, "nobody knows");
    }
}
