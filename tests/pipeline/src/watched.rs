//! The health of a worker, as observed by a test.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use idem_core::Health;
use tokio::sync::watch;

use super::settings::Settings;

/// Settings that expose the health of their worker.
pub(super) fn watched(concurrency: usize) -> (Settings, watch::Sender<Option<Health>>) {
    let health = watch::Sender::default();
    (Settings { concurrency, health: Some(health.clone()), ..Settings::default() }, health)
}

/// Whether a worker became not ready after it was first ready.
pub(super) struct Watched {
    seen: Arc<AtomicBool>,
    watch: tokio::task::JoinHandle<()>,
}

impl Watched {
    pub(super) async fn of(shown: watch::Sender<Option<Health>>) -> Self {
        let health = shown.borrow().clone().unwrap();
        is_ready(&health, true).await;
        let seen = Arc::new(AtomicBool::new(false));
        let unready = seen.clone();
        let watch = tokio::spawn(async move {
            loop {
                unready.fetch_or(!health.is_ready(), SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        Self { seen, watch }
    }

    pub(super) fn was_always_ready(self) {
        self.watch.abort();
        assert!(!self.seen.load(SeqCst), "the worker was not ready");
    }
}

/// Waits until the health satisfies the condition.
pub(super) async fn is_ready(health: &Health, ready: bool) {
    let turns = async {
        while health.is_ready() != ready {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // Each refusal costs a new connection, which is slow on a busy machine.
    tokio::time::timeout(Duration::from_secs(60), turns).await.unwrap();
}
