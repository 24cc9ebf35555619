//! The retry policy.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

/// When and how often a message is retried after its handler failed.
///
/// The default makes 5 attempts in total, including the first, with delays of about 1, 5, 25 and 125 seconds. A random
/// jitter of up to the same length is added to each delay, so that messages that failed together are not retried
/// together.
///
/// ```
/// # use std::time::Duration;
/// # use idem_core::RetryPolicy;
/// // Tries for 8 to 17 minutes, by the jitter: after 5, 10, 20, .. seconds, and after a minute each time from then on.
/// let retry = RetryPolicy::new()
///     .max_attempts(12)
///     .min_delay(Duration::from_secs(5))
///     .factor(2.0)
///     .max_delay(Duration::from_secs(60));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    attempts: u32,
    first: Duration,
    factor: f32,
    longest: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts: 5, first: Duration::from_secs(1), factor: 5.0, longest: Duration::from_secs(3600) }
    }
}

impl RetryPolicy {
    /// The default policy.
    pub fn new() -> Self {
        Self::default()
    }

    /// The maximum number of attempts, including the first; at least 1, which means no retries.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// The delay after the first failed attempt.
    pub fn min_delay(mut self, wait: Duration) -> Self {
        self.first = wait;
        self
    }

    /// The factor by which each delay is longer than the one before it; at least 1.
    pub fn factor(mut self, factor: f32) -> Self {
        self.factor = factor.max(1.0);
        self
    }

    /// The maximum delay, before jitter.
    pub fn max_delay(mut self, wait: Duration) -> Self {
        self.longest = wait;
        self
    }

    /// Returns the maximum delay, before jitter.
    pub(crate) fn longest(&self) -> Duration {
        self.longest
    }

    /// Returns the longest delay that there is between two attempts, before jitter.
    pub(crate) fn longest_between(&self) -> Duration {
        let growth = self.factor.powi(i32::try_from(self.attempts.saturating_sub(2)).unwrap_or(i32::MAX));
        match self.attempts {
            0 | 1 => Duration::ZERO,
            _ => Duration::try_from_secs_f32(self.first.as_secs_f32() * growth)
                .map_or(self.longest, |last| last.min(self.longest)),
        }
    }

    /// Returns the delay after this many failed attempts, or `None` if no attempt is left.
    pub(crate) fn after(&self, failed: u32) -> Option<Duration> {
        (failed < self.attempts).then(|| self.wait(failed))
    }

    /// Returns the delay after this many failures, without a limit on their number.
    fn wait(&self, failures: u32) -> Duration {
        ExponentialBuilder::default()
            .with_min_delay(self.first.min(self.longest))
            .with_max_delay(self.longest)
            .with_factor(self.factor)
            .with_jitter()
            .without_max_times()
            .build()
            .nth(failures.saturating_sub(1).min(64) as usize)
            .unwrap_or(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_delay_is_that_before_the_last_attempt() {
        let seconds = |policy: RetryPolicy| policy.longest_between().as_secs();
        let policy = RetryPolicy::default();
        assert_eq!((seconds(policy), seconds(policy.max_delay(Duration::from_secs(60)))), (125, 60));
        assert_eq!((seconds(policy.max_attempts(1)), seconds(policy.max_attempts(2))), (0, 1));
        assert_eq!(seconds(policy.max_attempts(u32::MAX)), 3600);
    }

    #[test]
    fn the_default_policy_waits_four_times_and_then_gives_up() {
        let policy = RetryPolicy::default();
        for (failed, wait) in [(1, 1), (2, 5), (3, 25), (4, 125)] {
            let wait = Duration::from_secs(wait);
            let after = policy.after(failed).unwrap();
            assert!((wait..=2 * wait).contains(&after), "{after:?} after {failed} failures, not about {wait:?}");
        }
        assert_eq!(policy.after(5), None);
    }

    #[test]
    fn no_wait_is_longer_than_the_longest_and_its_jitter() {
        let policy = RetryPolicy::new().max_attempts(1000).max_delay(Duration::from_secs(60));
        assert!(policy.after(999).unwrap() <= Duration::from_secs(120));
    }
}
