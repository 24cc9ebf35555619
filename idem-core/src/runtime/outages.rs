//! The outages of a process, whose workers may use several databases.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::sync::watch;

/// The number of workers of a process whose databases cannot be used.
#[derive(Debug, Clone)]
pub(super) struct Outages(watch::Sender<usize>);

/// What one worker adds to the outages of its process. Its outage ends when this is dropped.
#[derive(Debug)]
pub(crate) struct OwnOutage {
    all: Outages,
    lasts: AtomicBool,
}

impl Default for Outages {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Outages {
    /// Returns whether the database of a worker cannot be used.
    pub(super) fn any(&self) -> bool {
        *self.0.borrow() > 0
    }

    /// Waits until the database of a worker cannot be used. Cancel safe.
    pub(super) async fn began(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|workers| *workers > 0).await;
    }

    /// Adds a worker, whose database can be used.
    pub(super) fn worker(&self) -> OwnOutage {
        OwnOutage { all: self.clone(), lasts: AtomicBool::new(false) }
    }
}

impl OwnOutage {
    /// Reports whether the worker's database cannot be used. Calls must not overlap.
    pub(super) fn set(&self, lasts: bool) {
        if self.lasts.swap(lasts, Relaxed) != lasts {
            self.all.0.send_modify(|workers| *workers = if lasts { *workers + 1 } else { *workers - 1 });
        }
    }
}

impl Drop for OwnOutage {
    fn drop(&mut self) {
        self.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_outage_lasts_until_that_of_each_worker_is_over_or_its_worker_is_gone() {
        let outages = Outages::default();
        let (one, other) = (outages.worker(), outages.worker());
        assert!(!outages.any());
        one.set(true);
        one.set(true);
        other.set(true);
        outages.began().await;
        one.set(false);
        assert!(outages.any());
        drop(other);
        assert!(!outages.any());
        drop(one);
        assert!(!outages.any(), "an outage that is over is not ended again");
    }
}
