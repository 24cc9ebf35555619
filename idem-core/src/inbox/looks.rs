//! How far back the inbox is looked through: a database may have to step over all that was taken since the oldest of its
//! open snapshots, which a report of ten minutes makes a long way at each poll.

use std::time::{Duration, Instant};

use crate::store::{Row, Since};

/// How often everything is looked at. What a bounded look does not see waits for so long: a row that was committed late, or
/// whose holder has died.
const EVERY: Duration = Duration::from_secs(5);
/// How much further back a bounded look goes than all that is known to be gone: transactions that store rows take a while
/// from the time that they write to their commit.
const MARGIN: Duration = Duration::from_secs(3);

/// What is known to be gone. All times are this process's own, and only their distance from now reaches the database.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// When everything was looked at last.
    everything: Option<Instant>,
    /// Nothing that is ordinary and was due before this is left, as far as the last look could see.
    ordinary: Option<Instant>,
    /// The same of suspects.
    suspect: Option<Instant>,
}

impl Looks {
    /// How far back the next poll has to look.
    pub(super) fn due(&mut self, now: Instant) -> Since {
        if self.everything.is_none_or(|at| now.duration_since(at) >= EVERY) {
            *self = Self { everything: Some(now), ..Self::default() };
        }
        Since { ordinary: back(self.ordinary, now), suspect: back(self.suspect, now) }
    }

    /// How far back the next take of ordinary rows has to look.
    pub(super) fn take(&self, now: Instant) -> Option<Duration> {
        back(self.ordinary, now)
    }

    /// A poll that began at this time has found these.
    pub(super) fn polled(&mut self, began: Instant, ordinary: bool, suspect: bool) {
        if !ordinary {
            self.ordinary = Some(began);
        }
        if !suspect {
            self.suspect = Some(began);
        }
    }

    /// A take of ordinary rows that was begun at this time has found these, the oldest that were due.
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
            assert_eq!(looks.due(at(start)), Since::default());
            assert_eq!(looks.take(at(start)), None, "what an unbounded poll has found is taken by an unbounded take");
            looks.polled(at(start), false, false);
            for second in 1..5 {
                let bound = Some(Duration::from_secs(second) + MARGIN);
                assert_eq!(looks.due(at(start + second)), Since { ordinary: bound, suspect: bound });
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
        assert_eq!(looks.due(now), Since { ordinary: Some(MARGIN), suspect: None }, "suspects are still to be found");
    }
}
