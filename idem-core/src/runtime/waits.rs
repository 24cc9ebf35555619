//! The delays before a delivery that is held or refused is tried again, and between looks at a database that is away. How often
//! something is done at most.

use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use parking_lot::Mutex;

const SHORT: Duration = Duration::from_secs(2);
const BUSY: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(60);

/// Delays that grow from the first one to at most the longest one, each with a jitter.
pub(crate) fn growing_waits(first: Duration, longest: Duration) -> ExponentialBackoff {
    // The jitter adds up to 100 percent.
    let waits = ExponentialBuilder::default().with_min_delay(first).with_max_delay(longest / 2);
    waits.with_jitter().without_max_times().build()
}

/// Short delays first, because most outages are a lost connection; then up to two seconds.
pub(super) fn short() -> impl Iterator<Item = Duration> {
    growing_waits(Duration::from_millis(50), SHORT)
}

/// Returns the delay before the next try of a held delivery: longer with each hold, up to two seconds.
pub(crate) fn hold_wait(holds: usize) -> Duration {
    short().nth(holds.min(16)).unwrap_or(SHORT)
}

/// Returns the delay before the next try of a delivery whose claim another transaction holds: up to ten seconds, because
/// that transaction may run for as long as a handler, and each try waits for it in a lane for up to a second.
pub(crate) fn busy_wait(holds: usize) -> Duration {
    growing_waits(Duration::from_millis(50), BUSY).nth(holds.min(16)).unwrap_or(BUSY)
}

/// Returns the delay before the next try of a message that the database refuses although it works for others: up to one
/// minute, because an operator has to fix something first.
pub(crate) fn refused_wait(tries: usize) -> Duration {
    growing_waits(Duration::from_millis(100), LONG).nth(tries.min(16)).unwrap_or(LONG)
}

/// The delays after which work goes on with a database that answers but has refused work. If it refuses again soon, the delays
/// continue from the last one.
#[derive(Debug, Default)]
pub(super) struct Damped {
    next: Duration,
    /// When the last delay ends.
    ends: Option<Instant>,
}

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);
/// How long a database has to work before the delays start again from the shortest.
const QUIET: Duration = Duration::from_secs(60);

impl Damped {
    /// Returns the delay after which work goes on.
    pub(super) fn wait(&mut self) -> Duration {
        let is_quiet = self.ends.is_none_or(|ends| ends.elapsed() >= QUIET);
        let wait = if is_quiet { FIRST } else { self.next };
        *self = Self { next: (wait * 2).min(LONGEST), ends: Instant::now().checked_add(wait) };
        wait
    }
}

/// Adds jitter of up to 10 percent either way to a poll interval, which spreads the polls of many processes.
pub(crate) fn jittered(poll: Duration) -> Duration {
    poll.mul_f64(0.9 + 0.2 * fastrand::f64())
}

/// Sleeps until `time`, or forever if `None`.
pub(crate) async fn at(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// When something was last done that is done at most once in a while.
#[derive(Debug, Default)]
pub(crate) struct Rate(Mutex<Option<Instant>>);

impl Rate {
    /// Returns whether this time has passed since the last call that returned `true`.
    pub(crate) fn allows(&self, pause: Duration) -> bool {
        let mut last = self.0.lock();
        let allows = last.is_none_or(|last| last.elapsed() >= pause);
        if allows {
            *last = Some(Instant::now());
        }
        allows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_fails_again_soon_is_tried_where_it_was_left() {
        let mut damped = Damped::default();
        let waits: Vec<_> = (0..4).map(|_| damped.wait().as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800]);
        assert_eq!((0..20).map(|_| damped.wait()).last(), Some(LONGEST));
        damped.ends = Instant::now().checked_sub(QUIET);
        assert_eq!(damped.wait(), FIRST);
    }

    #[test]
    fn something_is_done_again_after_the_pause() {
        let rate = Rate::default();
        let hour = Duration::from_secs(3600);
        assert!(rate.allows(hour) && !rate.allows(hour));
        assert!(rate.allows(Duration::ZERO));
    }
}
