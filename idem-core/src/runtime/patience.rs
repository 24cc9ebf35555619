//! How long a suspect may keep other inbox rows from starting.

use std::time::{Duration, Instant};

/// The times for which suspects close the inbox of a process. A suspect waits until all running rows
/// have ended, and no row starts meanwhile. It gives up after a while, and tries again later: one row that runs for an
/// hour would otherwise stop all others for an hour.
///
/// After a suspect that gave up, and after one that closed the inbox for long, the inbox is open for as long as it was
/// closed, so that the other rows have at least half of the time. Each wait may take twice as long as the last one that
/// failed. So one of them is longer than the longest handler, and the suspect gets its turn in the end.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// How long the next suspect may wait, if that is longer than the least time.
    limit: Duration,
    /// No suspect may be waited for before this.
    open_until: Option<Instant>,
}

impl Patience {
    /// Returns whether the inbox has to stay open.
    pub(super) fn is_open(&self, now: Instant) -> bool {
        self.open_until.is_some_and(|until| now < until)
    }

    /// Returns how long the next suspect may wait.
    pub(super) fn limit(&self, least: Duration) -> Duration {
        self.limit.max(least)
    }

    /// Records that a suspect has waited for this long in vain.
    pub(super) fn gave_up(&mut self, waited: Duration, now: Instant) {
        self.limit = waited.saturating_mul(2);
        self.open_until = now.checked_add(waited);
    }

    /// Records that a suspect has run, after it had waited for this long, and that the inbox was closed for that long.
    pub(super) fn ran(&mut self, waited: Duration, closed: Duration, least: Duration, now: Instant) {
        self.limit = waited.saturating_mul(2);
        self.open_until = if closed > least { now.checked_add(closed) } else { None };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_secs(10);

    /// The worst case: whenever the inbox is open, rows start that run for this long.
    #[test]
    fn a_suspect_gets_its_turn_and_the_others_half_of_the_time() {
        let (handler, begun) = (Duration::from_secs(600), Instant::now());
        let (mut patience, mut now, mut closed) = (Patience::default(), begun, Duration::ZERO);
        let waited = loop {
            assert!(!patience.is_open(now));
            let limit = patience.limit(LEAST);
            if limit >= handler {
                break handler;
            }
            closed += limit;
            now += limit;
            patience.gave_up(limit, now);
            assert!(patience.is_open(now + limit / 2));
            now += limit;
        };
        assert_eq!(closed * 2, now - begun);
        assert!(closed < 2 * handler);
        // The next one waits no longer than that, and not at once.
        let run = Duration::from_secs(300);
        patience.ran(waited, waited + run, LEAST, now);
        assert!(patience.is_open(now + handler) && !patience.is_open(now + waited + run));
        assert_eq!(patience.limit(LEAST), 2 * handler);
    }

    #[test]
    fn short_suspects_follow_one_another() {
        let (mut patience, now) = (Patience::default(), Instant::now());
        patience.gave_up(LEAST, now);
        patience.ran(Duration::ZERO, Duration::from_secs(1), LEAST, now);
        assert!(!patience.is_open(now));
        assert_eq!(patience.limit(LEAST), LEAST);
    }
}
