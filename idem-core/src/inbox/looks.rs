//! How far back a poll or take searches the inbox: a database may have to skip all rows that were taken since the
//! oldest of its open snapshots. A report that runs for ten minutes holds a snapshot, and makes that a long way at each
//! poll.

use std::time::{Duration, Instant};

use crate::store::{LookBack, Row};

/// How often the whole inbox is searched. Rows that a bounded search does not find wait for that long: those that were
/// committed late, and those whose holder has died.
const EVERY: Duration = Duration::from_secs(5);
/// How much further back a bounded search goes than the time before which no due row is left: transactions that store
/// rows commit some time after they write.
const MARGIN: Duration = Duration::from_secs(3);

/// The times before which no due row is left. They are instants of this process; the database receives only their
/// distance from now.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// When the whole inbox was last searched.
    everything: Option<Instant>,
    /// No ordinary row that was due before this is left, as far as the last search could see.
    ordinary: Option<Instant>,
    /// The same for suspects.
    suspect: Option<Instant>,
}

impl Looks {
    /// Returns how far back the next poll has to search.
    pub(super) fn due(&mut self, now: Instant) -> LookBack {
        if self.everything.is_none_or(|at| now.duration_since(at) >= EVERY) {
            *self = Self { everything: Some(now), ..Self::default() };
        }
        LookBack { ordinary: back(self.ordinary, now), suspect: back(self.suspect, now) }
    }

    /// Returns how far back the next take of ordinary rows has to search.
    pub(super) fn take(&self, now: Instant) -> Option<Duration> {
        back(self.ordinary, now)
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
        let longest = rows.iter().map(|row| row.waited.unwrap_or(Duration::MAX)).max().unwrap_or_default();
        self.ordinary = began.checked_sub(longest);
    }
}

fn back(from: Option<Instant>, now: Instant) -> Option<Duration> {
    from.map(|from| now.saturating_duration_since(from) + MARGIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_looked_at_every_few_seconds_whatever_is_found() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut looks = Looks::default();
        for round in 0..3 {
            let start = round * 5;
            assert_eq!(looks.due(at(start)), LookBack::default());
            assert_eq!(looks.take(at(start)), None, "what an unbounded poll has found is taken by an unbounded take");
            looks.polled(at(start), false, false);
            for second in 1..5 {
                let bound = Some(Duration::from_secs(second) + MARGIN);
                assert_eq!(looks.due(at(start + second)), LookBack { ordinary: bound, suspect: bound });
            }
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
}
