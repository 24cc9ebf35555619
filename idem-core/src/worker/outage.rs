//! The pause while the database cannot be used.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::sync::watch;

use crate::Store;
use crate::store::Fault;

use super::Health;

/// Whether the database can be used. While it cannot, no delivery is taken from the broker and those at hand are held.
pub(crate) struct Outage {
    up: watch::Sender<bool>,
    health: Health,
}

impl Outage {
    pub(crate) fn new(health: Health) -> Self {
        Self { up: watch::Sender::new(true), health }
    }

    /// Begins the pause, if it has not begun.
    pub(crate) fn report(&self, error: &(dyn std::error::Error + 'static)) {
        if self.up.send_replace(false) {
            self.health.set_database(false);
            tracing::warn!(error = crate::error::text(error), "the database cannot be used; consumption pauses");
        }
    }

    /// Waits until the database cannot be used. Cancel safe.
    pub(crate) async fn began(&self) {
        let _ = self.up.subscribe().wait_for(|up| !*up).await;
    }

    /// Waits until the database can be used. Cancel safe.
    pub(crate) async fn over(&self) {
        // Looked at first, since it is asked for each delivery and nearly always over.
        if !*self.up.borrow() {
            // The sender lives in `self`, so that waiting cannot fail.
            let _ = self.up.subscribe().wait_for(|up| *up).await;
        }
    }

    /// Looks after the database while it is away, for ever.
    pub(crate) async fn watch<S: Store>(&self, store: &S) {
        let mut up = self.up.subscribe();
        loop {
            let _ = up.wait_for(|up| !*up).await;
            let mut waits = waits().build();
            while let Err(fault) = store.ping().await {
                tracing::debug!(error = crate::error::text(&fault), "the database is still away");
                tokio::time::sleep(waits.next().unwrap_or(LONGEST)).await;
            }
            self.up.send_replace(true);
            self.health.set_database(true);
            tracing::info!("the database can be used again; consumption goes on");
        }
    }
}

const LONGEST: Duration = Duration::from_secs(2);

/// Short first, since most outages are a lost connection; then every two seconds.
fn waits() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(LONGEST)
        .with_jitter()
        .without_max_times()
}

/// How long a delivery that is held waits before its next try: longer with each hold, up to the longest wait.
pub(crate) fn hold_wait(holds: usize) -> Duration {
    waits().build().nth(holds.min(16)).unwrap_or(LONGEST)
}

impl From<&Fault> for super::Hold {
    fn from(fault: &Fault) -> Self {
        match fault {
            Fault::Busy | Fault::Retry(_) => Self::Busy,
            Fault::Outage(_) => Self::Outage,
        }
    }
}
