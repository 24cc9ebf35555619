//! The settings of a worker, with their defaults.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::routes::RouteBy;
use crate::{DeliveryOrder, Error, Observed, RetryPolicy};

use super::isolation_lock::IsolationLock;

/// Called with each delivery and its outcome.
pub(crate) type Observer = Arc<dyn Fn(Observed<'_>) + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Settings {
    /// That of the program, for people.
    pub(crate) version: String,
    pub(crate) concurrency: usize,
    pub(crate) batch: usize,
    pub(crate) linger: Duration,
    /// If `None`, the default depends on the mode and the order.
    pub(crate) prefetch: Option<usize>,
    /// If `None`, the default depends on the mode.
    pub(crate) inbox_concurrency: Option<usize>,
    /// How many external calls are made at once.
    pub(crate) call_concurrency: usize,
    pub(crate) inbox: bool,
    pub(crate) handler_timeout: Duration,
    pub(crate) prepare_timeout: Duration,
    pub(crate) retry: RetryPolicy,
    pub(crate) max_payload: usize,
    pub(crate) lease: Duration,
    pub(crate) poll: Duration,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) order: DeliveryOrder,
    pub(crate) route_by: RouteBy,
    /// Whether several handlers may take one delivery.
    pub(crate) fan_out: bool,
    pub(crate) cloud_events: bool,
    /// Consumption pauses if this many of so many last deliveries are undeliverable.
    pub(crate) undeliverable_limit: (usize, usize),
    /// How many messages of the outbox may wait to be published.
    pub(crate) backlog: Option<u64>,
    /// How long no relay may be alive until the worker is unready.
    pub(crate) relay_patience: Duration,
    pub(crate) observe: Option<Observer>,
    pub(crate) isolation_lock: IsolationLock,
    /// Notified when a request of this process has staged messages for a handler. Clones of the settings share it.
    pub(crate) handed_over: Arc<Notify>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            concurrency: 16,
            batch: 1,
            linger: Duration::ZERO,
            prefetch: None,
            inbox_concurrency: None,
            call_concurrency: 16,
            inbox: false,
            handler_timeout: Duration::from_secs(30),
            prepare_timeout: Duration::from_secs(10),
            retry: RetryPolicy::default(),
            max_payload: 1024 * 1024,
            lease: Duration::from_secs(10),
            poll: Duration::from_secs(1),
            shutdown_timeout: Duration::from_secs(30),
            order: DeliveryOrder::None,
            route_by: RouteBy::EventType,
            fan_out: false,
            cloud_events: false,
            undeliverable_limit: (50, 100),
            backlog: None,
            relay_patience: Duration::from_secs(60),
            observe: None,
            isolation_lock: IsolationLock::process(),
            handed_over: Arc::default(),
        }
    }
}

/// The factor by which unsettled deliveries may exceed running ones, with an order by partition or key.
const WAITING: usize = 16;

/// How many single deliveries are at hand while so many run. A lane that has settled its delivery takes one of them, so that
/// it does not wait until the broker has the ack and has sent another: they are for those lanes that end within one round
/// trip. More would do little, and would be kept from idle workers when there are few messages.
fn at_hand(running: usize) -> usize {
    running.div_ceil(4)
}

/// Besides direct and inbox runs: the inbox's own statements, the housekeeping, and the sign of life.
const BOOKKEEPING: usize = 3;

/// The largest window of the kill switch, which is in memory, and is counted for each undeliverable message.
const WINDOW: usize = 10_000;

impl Settings {
    pub(crate) fn is_unordered(&self) -> bool {
        self.order == DeliveryOrder::None
    }

    /// Returns how many connections a worker can use at once. With an order no batches are stored, and those of them are for the
    /// deliveries that wait for their rows, which query the database one after another.
    pub(crate) fn connections(&self) -> usize {
        self.direct() + 2 * self.stored_at_once() + self.inbox_concurrency() + BOOKKEEPING
    }

    /// Returns how many deliveries run at once: none if all of them are stored.
    pub(crate) fn direct(&self) -> usize {
        if self.inbox { 0 } else { self.concurrency }
    }

    /// Returns how many batches of deliveries are stored at once, and how many single deliveries besides, which are undeliverable
    /// or held up. In inbox mode all deliveries are stored, otherwise only redelivered ones. One batch is written while another
    /// waits for its commit; more connections would only make the batches smaller.
    pub(crate) fn stored_at_once(&self) -> usize {
        if self.inbox { 2 } else { 1 }
    }

    /// Returns how many rows of the inbox run at once. In inbox mode the default is that of `concurrency`.
    pub(crate) fn inbox_concurrency(&self) -> usize {
        self.inbox_concurrency.unwrap_or(if self.inbox { self.concurrency } else { 4 })
    }

    /// Returns how many deliveries may be unsettled at once.
    pub(crate) fn unsettled(&self) -> usize {
        self.prefetch.unwrap_or_else(|| self.usual()).min(u16::MAX.into())
    }

    /// Returns how many deliveries may be unsettled if the broker limits all workers together: those at hand are left out,
    /// unless the user has asked for them.
    pub(crate) fn least_unsettled(&self) -> usize {
        let single = self.prefetch.is_none() && self.is_unordered() && self.batch == 1;
        if single { self.concurrency } else { self.unsettled() }
    }

    /// By default, single deliveries have some [`at_hand`]. A batch takes the deliveries that are available, so as many as
    /// are in progress must wait behind them; otherwise each lane would find only those received since it settled its last
    /// batch. In an order by partition or key, deliveries that wait for their turn or their next attempt must leave room
    /// for other keys. In the order of a queue nothing runs concurrently with the first one, and with `.inbox()` deliveries are
    /// settled at once.
    fn usual(&self) -> usize {
        let running = self.worked_on();
        match self.order {
            DeliveryOrder::Partition | DeliveryOrder::Key => running.saturating_mul(WAITING),
            DeliveryOrder::None if self.batch > 1 => running.saturating_mul(2),
            DeliveryOrder::None if !self.inbox => running.saturating_add(at_hand(running)),
            _ => running,
        }
    }

    /// Returns how many deliveries all lanes process at once.
    fn worked_on(&self) -> usize {
        self.concurrency.saturating_mul(self.batch)
    }

    pub(crate) fn check(&self, consumer: &str) -> Result<(), Error> {
        let refuse = |text: &str| Err(Error::Config(text.to_owned()));
        if consumer.is_empty() || consumer.len() > 200 || consumer.contains('\0') {
            return refuse("the consumer's name must have 1 to 200 bytes and no NUL: it is part of every claim");
        }
        if self.concurrency == 0 || u16::try_from(self.concurrency).is_err() {
            return refuse("`.concurrency(..)` must be 1 to 65535");
        }
        if self.batch == 0 || self.worked_on() > usize::from(u16::MAX) {
            return refuse("`.batch(..)` must be at least 1, and `.concurrency(..)` times `.batch(..)` at most 65535");
        }
        if self.prefetch.is_some_and(|prefetch| prefetch < self.worked_on() || u16::try_from(prefetch).is_err()) {
            return refuse(
                "`.prefetch(..)` must be at least `.concurrency(..)` times `.batch(..)`, or less would be processed at \
                 once, and at most 65535",
            );
        }
        let unordered = [
            (self.batch > 1, ".batch(..)", "after a failure in a batch, later messages would run first"),
            (self.inbox, ".inbox()", "the inbox runs messages concurrently as they become due"),
            (self.fan_out, ".fan_out()", "each handler runs a message by itself, so a later one could run first"),
        ];
        if let Some((_, option, why)) = unordered.iter().find(|(is_set, ..)| *is_set && !self.is_unordered()) {
            return refuse(&format!("`{option}` and `.order(..)` cannot be combined: {why}; remove one of them"));
        }
        if self.inbox_concurrency() == 0 {
            return refuse("`.inbox_concurrency(..)` must be at least 1: retries run from the inbox");
        }
        if self.call_concurrency == 0 {
            return refuse("`.call_concurrency(..)` must be at least 1");
        }
        if [self.handler_timeout, self.prepare_timeout, self.lease, self.poll].iter().any(Duration::is_zero) {
            return refuse(
                "`.handler_timeout(..)`, `.prepare_timeout(..)`, `.lease_duration(..)` and `.poll_interval(..)` must be longer than zero",
            );
        }
        let (limit, of) = self.undeliverable_limit;
        if !(1..=of).contains(&limit) || of > WINDOW {
            return refuse(
                "`.undeliverable_limit(limit, of)` needs a limit from 1 to `of`, and `of` at most 10000, since the worker keeps so \
                 many in memory: for messages that nobody needs, add a handler that names no event, and does nothing",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_has_its_next_delivery_at_hand_unless_that_is_turned_off() {
        let direct = || Settings { concurrency: 4, ..Settings::default() };
        let unsettled = [
            direct(),
            Settings { batch: 5, ..direct() },
            Settings { inbox: true, ..direct() },
            Settings { order: DeliveryOrder::Queue, ..direct() },
            Settings { order: DeliveryOrder::Key, ..direct() },
            Settings { prefetch: Some(7), ..direct() },
            Settings { concurrency: 65_535, ..direct() },
        ];
        let limited = unsettled.clone().map(|settings| settings.least_unsettled());
        assert_eq!(unsettled.map(|settings| settings.unsettled()), [5, 40, 4, 4, 64, 7, 65_535]);
        assert_eq!(limited, [4, 40, 4, 4, 64, 7, 65_535], "what is at hand is left out unless it was asked for");
        assert_eq!([1, 2, 4, 5, 16, 100].map(at_hand), [1, 1, 1, 2, 4, 25]);
        let accepted = |prefetch| Settings { prefetch: Some(prefetch), ..direct() }.check("billing").is_ok();
        assert!(!accepted(3) && accepted(4) && accepted(65_535) && !accepted(65_536));
    }

    /// A window without an end would turn the kill switch off, and grow in memory for as long as the worker runs.
    #[test]
    fn the_window_of_the_kill_switch_has_an_end() {
        let accepted = |undeliverable_limit| {
            let settings = Settings { undeliverable_limit, ..Settings::default() };
            settings.check("billing").is_ok()
        };
        assert!(accepted((1, 1)) && accepted((WINDOW, WINDOW)));
        assert!(
            !accepted((0, 1)) && !accepted((2, 1)) && !accepted((1, WINDOW + 1)) && !accepted((usize::MAX, usize::MAX))
        );
    }
}
