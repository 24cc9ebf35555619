//! The builder of a relay, and its options.

use std::fmt;
use std::time::Duration;

use crate::outbox::Sink;
use crate::runtime::Health;
use crate::{Error, RetryPolicy, Store};

/// The most messages that are published at the same time.
const MOST: usize = 100_000;

/// The longest time of each option.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The options of a relay.
#[derive(Debug, Clone)]
pub(super) struct RelaySettings {
    /// That of the program, for people.
    pub(super) version: String,
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
            version: env!("CARGO_PKG_VERSION").to_owned(),
            concurrency: 500,
            lease: Duration::from_secs(8),
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
        let longest = [self.lease, self.poll, self.publish_timeout, self.shutdown_timeout].into_iter().max();
        if self.concurrency > MOST || longest > Some(LONGEST) {
            return refuse("a relay's `.concurrency(..)` must be at most 100,000, and its times at most a day");
        }
        Ok(())
    }
}

/// Publishes the messages of an outbox to a broker.
///
/// ```no_run
/// # use idem_core::{Relay, Store, Sink, Error};
/// # async fn run<S: Store>(store: S, events: impl Sink, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
/// Relay::new("billing", store, events)
///     .run_until(shutdown)
///     .await
/// # }
/// ```
///
/// The same with all defaults written out:
///
/// ```no_run
/// # use std::time::Duration; use idem_core::{Relay, RetryPolicy, Store, Sink, Error};
/// # async fn run<S: Store>(store: S, events: impl Sink, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
/// Relay::new("billing", store, events)
///     .concurrency(500)
///     .retry(RetryPolicy::new().max_attempts(10).factor(2.0).max_delay(Duration::from_secs(300)))
///     .publish_timeout(Duration::from_secs(10))
///     .lease_duration(Duration::from_secs(8))
///     .poll_interval(Duration::from_millis(100))
///     .shutdown_timeout(Duration::from_secs(10))
///     .run_until(shutdown)
///     .await
/// # }
/// ```
///
/// A message is deleted once the broker has confirmed it, so each is published at least once: after a crash between the
/// two it is published again, under the same id. Messages with one key arrive in the order in which they were staged, if
/// the transactions that staged them waited for each other, as those do that write to the same row first. A copy may
/// arrive behind a later message of its key.
///
/// Of several relays of one name, in one process or many, one publishes, and the others stand by. If it ends, another one goes on
/// within a second or two, and if it dies, when its lease has ended: within 10 seconds. More throughput needs more outboxes, each
/// with a name and a relay of its own.
#[must_use = "a relay does nothing until `run_until`"]
pub struct Relay<S, K> {
    /// That of its outbox.
    pub(crate) name: String,
    pub(super) store: S,
    pub(super) sink: K,
    pub(super) settings: RelaySettings,
    pub(super) health: Health,
}

impl<S: Store, K: Sink> Relay<S, K> {
    /// Returns a relay of the outbox with this name: that of the consumer whose handlers stage messages, or the one that
    /// the application has given to `store.outbox(name)`.
    pub fn new(name: impl Into<String>, store: S, sink: K) -> Self {
        Self { name: name.into(), store, sink, settings: RelaySettings::default(), health: Health::new() }
    }

    /// Sets the version of your program, as [`Worker::version`](crate::Worker::version) does. The default is the version of idem.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.settings.version = version.into();
        self
    }

    /// Sets how many messages may be published at once; 500 by default, and one of each key. Up to 20 times as many are
    /// kept in memory, from 1,000 to 100,000, and no more than about 64 MiB of payloads and headers, besides those of
    /// one read. Of those that wait for their next attempt, or for their destination, only the ids and keys are kept:
    /// of up to 100 times as many, from 1,000 to 50,000.
    pub fn concurrency(mut self, messages: usize) -> Self {
        self.settings.concurrency = messages;
        self
    }

    /// Sets when and how often a message is published again that the broker has rejected. By default it becomes a dead
    /// letter after 10 attempts, which take 8.5 to 17 minutes, by the jitter. Messages of its key wait meanwhile, and others
    /// pass. Failures of the broker count as no attempt.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.settings.retry = policy;
        self
    }

    /// Sets how long the broker may take to confirm a message; 10 seconds by default. After that the message is published
    /// again, and if no other was confirmed meanwhile, the broker counts as away.
    pub fn publish_timeout(mut self, timeout: Duration) -> Self {
        self.settings.publish_timeout = timeout;
        self
    }

    /// Sets the lease of the outbox: how long its messages wait if this process dies; 8 seconds by default, at least 100 ms. It
    /// is renewed after a third of it, or after 5 seconds, and nothing is published when less than a third is left.
    pub fn lease_duration(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// Sets how often the outbox is read if nothing was staged in this process; 100 milliseconds by default. Messages
    /// that a worker of this process stages on a clone of the same store are read at once.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.settings.poll = interval;
        self
    }

    /// Sets how long a drain waits for messages that are being published; 10 seconds by default.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.settings.shutdown_timeout = timeout;
        self
    }

    /// Returns a handle to the health of this relay. Call it before the relay runs.
    pub fn health(&self) -> Health {
        self.health.clone()
    }
}

impl<S, K> fmt::Debug for Relay<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("name", &self.name).field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let fit = RelaySettings::default;
        assert!(fit().check("billing").is_ok() && fit().check("").is_err());
        let max = Duration::MAX;
        for undeliverable in [
            RelaySettings { concurrency: 0, ..fit() },
            RelaySettings { concurrency: usize::MAX, ..fit() },
            RelaySettings { lease: max, ..fit() },
            RelaySettings { poll: max, ..fit() },
            RelaySettings { publish_timeout: max, ..fit() },
            RelaySettings { shutdown_timeout: max, ..fit() },
        ] {
            assert!(matches!(undeliverable.check("billing"), Err(Error::Config(_))), "{undeliverable:?}");
        }
    }
}
