//! How long it is waited before something is tried again.

use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

const SHORT: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(60);

fn waits(first: Duration, longest: Duration) -> ExponentialBackoff {
    // The jitter adds up to as much again.
    let waits = ExponentialBuilder::default().with_min_delay(first).with_max_delay(longest / 2);
    waits.with_jitter().without_max_times().build()
}

/// Short first, since most outages are a lost connection; then every two seconds.
pub(super) fn short() -> impl Iterator<Item = Duration> {
    waits(Duration::from_millis(50), SHORT)
}

/// How long a delivery that is held waits before its next try: longer with each hold, up to two seconds.
pub(crate) fn hold_wait(holds: usize) -> Duration {
    short().nth(holds.min(16)).unwrap_or(SHORT)
}

/// The same of one that the database refuses although it works: up to a minute, since somebody has to mend something first.
pub(crate) fn refused_wait(tries: usize) -> Duration {
    waits(Duration::from_millis(100), LONG).nth(tries.min(16)).unwrap_or(LONG)
}

/// The waits between the trials of a database that answers and refuses its work. One that refuses again soon after a trial
/// has succeeded goes on where it was, so that it does not come and go with each small message.
#[derive(Debug)]
pub(super) struct Damped {
    next: Duration,
    ended: Option<Instant>,
}

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);
/// For so long a database has to work before it is trusted as one that never failed.
const QUIET: Duration = Duration::from_secs(60);

impl Default for Damped {
    fn default() -> Self {
        Self { next: FIRST, ended: None }
    }
}

impl Damped {
    pub(super) fn begins(&mut self) {
        if self.ended.is_none_or(|ended| ended.elapsed() >= QUIET) {
            self.next = FIRST;
        }
    }

    /// The wait before the next trial.
    pub(super) fn wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(LONGEST);
        wait
    }

    pub(super) fn ends(&mut self) {
        self.ended = Some(Instant::now());
    }
}

/// Polls of many processes spread by themselves when each is a little off.
pub(crate) fn jittered(poll: Duration) -> Duration {
    poll.mul_f64(0.9 + 0.2 * fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_fails_again_soon_is_tried_where_it_was_left() {
        let mut damped = Damped::default();
        damped.begins();
        let waits: Vec<_> = (0..3).map(|_| damped.wait().as_millis()).collect();
        assert_eq!(waits, [100, 200, 400]);
        damped.ends();
        damped.begins();
        assert_eq!(damped.wait().as_millis(), 800);
        assert_eq!((0..20).map(|_| damped.wait()).last(), Some(LONGEST));
        damped.ended = Instant::now().checked_sub(QUIET);
        damped.begins();
        assert_eq!(damped.wait(), FIRST);
    }
}
