//! The options of a relay.

use std::time::Duration;

use crate::{Error, RetryPolicy};

/// The options of a relay.
#[derive(Debug, Clone)]
pub(super) struct RelaySettings {
    pub(super) concurrency: usize,
    pub(super) lease: Duration,
    pub(super) poll: Duration,
    pub(super) publish_timeout: Duration,
    pub(super) shutdown_timeout: Duration,
    pub(super) retry: RetryPolicy,
}

impl Default for RelaySettings {
    fn default() -> Self {
        Self {
            concurrency: 500,
            lease: Duration::from_secs(10),
            poll: Duration::from_millis(100),
            publish_timeout: Duration::from_secs(10),
            shutdown_timeout: Duration::from_secs(10),
            retry: RetryPolicy::new().max_attempts(10).factor(2.0).max_delay(Duration::from_secs(300)),
        }
    }
}

impl RelaySettings {
    pub(super) fn check(&self, name: &str) -> Result<(), Error> {
        let refuse = |text: &str| Err(Error::Config(text.to_owned()));
        if name.is_empty() || name.len() > 200 || name.contains('\0') {
            return refuse("the relay's name must have 1 to 200 bytes and no NUL: it is the name of the outbox");
        }
        if self.concurrency == 0 {
            return refuse("`.concurrency(..)` of a relay must be at least 1");
        }
        if self.lease < Duration::from_millis(100) || self.poll.is_zero() || self.publish_timeout.is_zero() {
            return refuse(
                "`.lease_duration(..)` of a relay must be at least 100 ms, and `.poll_interval(..)` and \
                 `.publish_timeout(..)` longer than zero",
            );
        }
        Ok(())
    }
}
