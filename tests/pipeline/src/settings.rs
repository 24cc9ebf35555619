//! The settings of a case's worker.

use std::time::Duration;

use idem_core::{DeliveryOrder, Health, IsolationLock, RetryPolicy};
use tokio::sync::watch;

/// The settings of a worker.
#[derive(Clone)]
pub(super) struct Settings {
    /// The process to which the worker belongs; `None` is a separate one.
    pub(super) gate: Option<IsolationLock>,
    pub(super) consumer: &'static str,
    pub(super) concurrency: usize,
    pub(super) inbox_concurrency: usize,
    /// Whether single messages are taken ahead of those that run. Otherwise each worker has as many as it runs at once.
    pub(super) ahead: bool,
    pub(super) call_concurrency: usize,
    pub(super) handler_timeout: Duration,
    pub(super) prepare_timeout: Duration,
    pub(super) retry: RetryPolicy,
    pub(super) max_payload: usize,
    pub(super) drain: Duration,
    pub(super) poll: Duration,
    pub(super) event_type: Option<&'static str>,
    pub(super) both: bool,
    pub(super) order: DeliveryOrder,
    pub(super) linger: Duration,
    pub(super) undeliverable_limit: (usize, usize),
    pub(super) backlog: Option<u64>,
    pub(super) relay_patience: Duration,
    /// Receives the health of the worker.
    pub(super) health: Option<watch::Sender<Option<Health>>>,
}

impl Settings {
    /// By which a message that has failed has its next attempt later than any test.
    pub(super) fn late() -> Self {
        let hour = Duration::from_secs(3600);
        Self { retry: RetryPolicy::new().min_delay(hour).max_delay(hour), ..Self::default() }
    }

    /// By which a message has one attempt.
    pub(super) fn once() -> Self {
        Self { retry: RetryPolicy::new().max_attempts(1), ..Self::default() }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            gate: None,
            consumer: "billing",
            concurrency: 8,
            inbox_concurrency: 2,
            ahead: true,
            call_concurrency: 4,
            handler_timeout: Duration::from_secs(30),
            prepare_timeout: Duration::from_secs(10),
            retry: RetryPolicy::new().min_delay(Duration::from_millis(1)).max_delay(Duration::from_millis(5)),
            max_payload: 1024 * 1024,
            drain: Duration::from_secs(30),
            poll: Duration::from_millis(20),
            event_type: None,
            both: false,
            order: DeliveryOrder::None,
            linger: Duration::ZERO,
            undeliverable_limit: (50, 100),
            backlog: None,
            relay_patience: Duration::from_secs(60),
            health: None,
        }
    }
}
