//! Whether the broker answers.

use std::time::Duration;

use tokio::time::Instant;

use crate::runtime::jittered;

/// The delay after the first failure of the broker, and the longest one.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// The longest delay of a message that gets no answer while others are confirmed.
const UNANSWERED: Duration = Duration::from_secs(120);

/// How many messages are published at once to find out whether the broker answers again.
const PROBES: usize = 16;

/// Whether the broker answers. A failure counts only if no message has been confirmed since the failed one was
/// published: otherwise a queue that hangs would stop all others.
#[derive(Debug, Default)]
pub(super) struct Broker {
    confirmed: Option<Instant>,
    away: Option<Away>,
}

#[derive(Debug)]
struct Away {
    until: Instant,
    failures: u32,
}

impl Broker {
    /// Records a confirm. Returns whether the broker had been away.
    pub(super) fn confirmed(&mut self, now: Instant) -> bool {
        self.confirmed = Some(now);
        self.away.take().is_some()
    }

    /// Records a failure of a message that was published at `began`. If it was `late`, it has waited for the timeout, and
    /// nothing waits further: it may be one of many for a queue that hangs, behind which others are. Returns whether the
    /// broker is away because of it, and was not before.
    pub(super) fn failed(&mut self, began: Instant, now: Instant, late: bool) -> bool {
        if self.confirmed.is_some_and(|confirmed| confirmed > began) {
            return false;
        }
        match &mut self.away {
            // Of messages that failed together, the first one counts.
            Some(away) if began < away.until => false,
            Some(_) if late => false,
            Some(away) => {
                away.failures = away.failures.saturating_add(1);
                away.until = now + wait(away.failures);
                false
            }
            None => {
                self.away = Some(Away { until: if late { now } else { now + wait(0) }, failures: 0 });
                true
            }
        }
    }

    /// Returns how many messages may be published at a time, of at most `most`; and how many of these may be ones of which
    /// an earlier attempt got no answer. Otherwise these would take all places, and keep each for the timeout.
    pub(super) fn places(&self, most: usize, now: Instant) -> (usize, usize) {
        match &self.away {
            Some(away) if now < away.until => (0, 0),
            Some(_) => (PROBES.min(most), (PROBES.min(most) / 4).max(1)),
            None => (most, (most / 4).max(1)),
        }
    }

    /// Returns how long to wait after a message got no answer, so many times in a row and once more.
    pub(super) fn delay(&self, tries: u32) -> Duration {
        match self.away {
            Some(_) => wait(tries),
            // Others are confirmed.
            None => jittered(SHORTEST.saturating_mul(1 << tries.min(11)).min(UNANSWERED)),
        }
    }

    /// When the next message may be published, if the broker is away.
    pub(super) fn until(&self) -> Option<Instant> {
        self.away.as_ref().map(|away| away.until)
    }
}

/// The delay after so many failures in a row.
pub(super) fn wait(failures: u32) -> Duration {
    jittered(SHORTEST.saturating_mul(1 << failures.min(6)).min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_broker_that_is_away_is_probed_after_growing_delays() {
        let now = Instant::now();
        let mut broker = Broker::default();
        assert_eq!(broker.places(500, now), (500, 125));
        assert!(broker.failed(now, now, false));
        assert_eq!(broker.places(500, now), (0, 0));
        let next = broker.until().unwrap();
        assert_eq!((broker.places(500, next), broker.places(1, next)), ((16, 4), (1, 1)));
        assert!(!broker.failed(now, next, false), "it was published before");
        assert_eq!(broker.until(), Some(next));
        assert!(!broker.failed(next, next, false));
        assert!(broker.until().unwrap() > next);
        assert!(broker.confirmed(next));
        assert_eq!(broker.places(500, next), (500, 125));
    }

    #[tokio::test]
    async fn a_message_that_gets_no_answer_while_others_do_is_no_outage() {
        let now = Instant::now();
        let mut broker = Broker::default();
        broker.confirmed(now + Duration::from_secs(1));
        assert!(!broker.failed(now, now + Duration::from_secs(10), true));
        assert_eq!(broker.until(), None);
        assert!(broker.delay(0) < Duration::from_secs(1) && broker.delay(20) > Duration::from_secs(60));
    }

    #[tokio::test]
    async fn after_a_timeout_others_are_tried_at_once() {
        let now = Instant::now();
        let mut broker = Broker::default();
        let late = now + Duration::from_secs(10);
        assert!(broker.failed(now, late, true) && !broker.failed(now, late, true));
        assert_eq!(broker.places(500, late), (16, 4));
        assert!(!broker.failed(late, late + Duration::from_secs(10), true));
        assert_eq!(broker.until(), Some(late));
    }
}
