//! When to try again.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

/// When a message whose handler failed runs again, and how often.
///
/// The default makes 5 attempts in all, the first included, with waits of about 1, 5, 25 and 125 seconds. Up to as much
/// again is added at random, so that messages that failed together do not come back together.
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

    /// How many attempts a message has, the first included; at least 1, which means no retry.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// The wait after the first failed attempt.
    pub fn first(mut self, wait: Duration) -> Self {
        self.first = wait;
        self
    }

    /// By how much each wait is longer than the one before it; at least 1.
    pub fn factor(mut self, factor: f32) -> Self {
        self.factor = factor.max(1.0);
        self
    }

    /// The longest wait, before jitter.
    pub fn longest(mut self, wait: Duration) -> Self {
        self.longest = wait;
        self
    }

    /// The wait after this many failed attempts, or `None` where there is no attempt left.
    pub(crate) fn after(&self, failed: u32) -> Option<Duration> {
        (failed < self.attempts).then(|| self.wait(failed))
    }

    /// The wait after this many failures, without an end.
    pub(crate) fn wait(&self, failures: u32) -> Duration {
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
        let policy = RetryPolicy::new().attempts(1000).longest(Duration::from_secs(60));
        assert!(policy.after(999).unwrap() <= Duration::from_secs(120));
    }
}
