//! The pause between reads that bring nothing and visit what they leave out.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

/// After such a read, the next one waits for so many times as long as it took.
const SELDOM: u32 = 4;

/// The longest pause. A read may also take long because it waits for a connection, or the database is slow.
const LONGEST: Duration = Duration::from_secs(5);

/// A read visits all messages of the keys that it leaves out, unless they are below the level of their lane; and the level
/// rises only if a message is found behind them. If there is none, no read in such a lane is worth its time.
#[derive(Debug, Default)]
pub(super) struct Pause {
    /// The lanes that the read which runs visits for others, although it leaves out keys there.
    visits: BTreeSet<u8>,
    until: Option<Instant>,
}

impl Pause {
    /// When the pause ends, if there is one now.
    pub(super) fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }

    /// Records the lanes that the read which begins visits for others, although it leaves out keys there. A lane that it
    /// reads for keys is not one of them.
    pub(super) fn begin(&mut self, visits: BTreeSet<u8>) {
        self.visits = visits;
    }

    /// Records that a read has ended, which began at `began`, and the lanes in which it has found messages. Those of a key
    /// with a backlog do not show that the visits of other lanes are worth their time.
    pub(super) fn end(&mut self, began: Instant, now: Instant, lanes: &BTreeSet<u8>) {
        if !self.visits.is_empty() {
            let pause = now.duration_since(began).saturating_mul(SELDOM).min(LONGEST);
            self.until = self.visits.is_disjoint(lanes).then_some(now + pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reads_that_bring_nothing_take_a_fifth_of_the_time() {
        let (now, ms) = (Instant::now(), Duration::from_millis);
        let (mut pause, none, lane) = (Pause::default(), BTreeSet::new(), BTreeSet::from([0]));
        pause.end(now, now + ms(10), &none);
        assert_eq!(pause.until(now + ms(10)), None, "it has left out no key");
        pause.begin(lane.clone());
        pause.end(now, now + ms(10), &lane);
        assert_eq!(pause.until(now + ms(10)), None, "there may be more");
        pause.end(now, now + ms(10), &none);
        assert_eq!((pause.until(now + ms(49)), pause.until(now + ms(50))), (Some(now + ms(50)), None));
        // Of another lane, meanwhile.
        pause.begin(none);
        pause.end(now, now + ms(20), &BTreeSet::from([1]));
        assert_eq!(pause.until(now + ms(49)), Some(now + ms(50)));
    }

    #[tokio::test]
    async fn messages_of_a_lane_that_is_read_for_a_key_end_no_pause() {
        let (now, ms) = (Instant::now(), Duration::from_millis);
        let mut pause = Pause::default();
        pause.begin(BTreeSet::from([0, 2]));
        pause.end(now, now + ms(10), &BTreeSet::from([1]));
        assert_eq!(pause.until(now + ms(10)), Some(now + ms(50)));
        pause.end(now, now + ms(10), &BTreeSet::from([1, 2]));
        assert_eq!(pause.until(now + ms(10)), None);
    }

    #[tokio::test]
    async fn a_database_that_was_frozen_makes_no_long_pause() {
        let now = Instant::now();
        let mut pause = Pause { visits: BTreeSet::from([0]), until: None };
        pause.end(now, now + Duration::from_secs(60), &BTreeSet::new());
        assert_eq!(pause.until(now + Duration::from_secs(60)), Some(now + Duration::from_secs(65)));
    }
}
