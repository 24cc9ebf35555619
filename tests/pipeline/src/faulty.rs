//! A store that fails on demand.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use idem_core::store::StoreError;
use tokio::sync::watch;

use idem_test::tapped_store::StoreTap;

/// The action of a store method.
pub(super) enum Do {
    Work,
    Fail(StoreError),
    Panic,
    Hang,
    /// Works once the test opens the gate.
    Wait(watch::Receiver<bool>),
    /// Hangs, and drops this value when it is given up.
    HangWith(Box<dyn Send>),
}

/// Calls the test's hook before the store does anything, with the method's name and, if the call is about a message,
/// its key.
#[derive(Clone)]
pub(super) struct Faulty {
    hook: Arc<Hook>,
    /// How much earlier the next statements that fetch or date calls say that they had their connections.
    earlier: Arc<Mutex<VecDeque<Duration>>>,
}

type Hook = dyn Fn(&'static str, &[u8]) -> Do + Send + Sync;

impl Faulty {
    pub(super) fn new(hook: impl Fn(&'static str, &[u8]) -> Do + Send + Sync + 'static) -> Self {
        Self { hook: Arc::new(hook), earlier: Arc::default() }
    }

    /// A store that works, and whose first statements that fetch or date calls have had their connections for so long.
    pub(super) fn with_late_calls(by: &[Duration]) -> Self {
        let earlier = by.iter().copied().collect::<VecDeque<_>>();
        Self { earlier: Arc::new(Mutex::new(earlier)), ..Self::new(|_, _| Do::Work) }
    }
}

impl StoreTap for Faulty {
    fn since(&self, since: Instant) -> Instant {
        let by = self.earlier.lock().unwrap().pop_front().unwrap_or_default();
        since.checked_sub(by).unwrap()
    }

    async fn before(&self, method: &'static str, key: &[u8]) -> Result<(), StoreError> {
        match (self.hook)(method, key) {
            Do::Work => Ok(()),
            Do::Fail(fault) => Err(fault),
            Do::Panic => panic!("the store panics"),
            Do::Hang => std::future::pending().await,
            Do::Wait(mut gate) => {
                let _ = gate.wait_for(|open| *open).await;
                Ok(())
            }
            Do::HangWith(_held) => std::future::pending().await,
        }
    }
}
