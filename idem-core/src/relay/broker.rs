//! Whether the broker answers.

use std::time::Duration;

use tokio::time::Instant;

use crate::runtime::jittered;

/// The delay after the first failure of the broker, and the longest one.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// How many messages are published at once to find out whether the broker answers again.
const PROBES: usize = 4;

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

    /// Records a failure of a message that was published at `began`. Returns whether the broker is away because of it, and
    /// was not before.
    pub(super) fn failed(&mut self, began: Instant, now: Instant) -> bool {
        if self.confirmed.is_some_and(|confirmed| confirmed > began) {
            return false;
        }
        match &mut self.away {
            // Of messages that failed together, the first one counts.
            Some(away) if began < away.until => false,
            Some(away) => {
                away.failures = away.failures.saturating_add(1);
                away.until = now + wait(away.failures);
                false
            }
            None => {
                self.away = Some(Away { until: now + wait(0), failures: 0 });
                true
            }
        }
    }

    /// Returns how many more messages may be published, if so many are being published and at most `most` may be.
    pub(super) fn room(&self, publishing: usize, most: usize, now: Instant) -> usize {
        let most = match &self.away {
            Some(away) if now < away.until => 0,
            Some(_) => PROBES.min(most),
            None => most,
        };
        most.saturating_sub(publishing)
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
        assert_eq!(broker.room(100, 500, now), 400);
        assert!(broker.failed(now, now));
        assert_eq!(broker.room(0, 500, now), 0);
        let next = broker.until().unwrap();
        assert_eq!((broker.room(0, 500, next), broker.room(4, 500, next)), (4, 0));
        assert!(!broker.failed(now, next), "it was published before");
        assert_eq!(broker.until(), Some(next));
        assert!(!broker.failed(next, next));
        assert!(broker.until().unwrap() > next);
        assert!(broker.confirmed(next));
        assert_eq!(broker.room(0, 500, next), 500);
    }

    #[tokio::test]
    async fn a_message_that_gets_no_answer_while_others_do_is_no_outage() {
        let now = Instant::now();
        let mut broker = Broker::default();
        broker.confirmed(now + Duration::from_secs(1));
        assert!(!broker.failed(now, now + Duration::from_secs(10)));
        assert_eq!(broker.until(), None);
    }
}
