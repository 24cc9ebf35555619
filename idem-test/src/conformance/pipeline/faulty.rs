//! A store that fails on demand.

use std::sync::Arc;

use idem_core::store::StoreError;
use tokio::sync::watch;

use crate::tapped_store::StoreTap;

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
pub(super) struct Faulty(Arc<Hook>);

type Hook = dyn Fn(&'static str, &[u8]) -> Do + Send + Sync;

impl Faulty {
    pub(super) fn new(hook: impl Fn(&'static str, &[u8]) -> Do + Send + Sync + 'static) -> Self {
        Self(Arc::new(hook))
    }
}

impl StoreTap for Faulty {
    async fn before(&self, method: &'static str, key: &[u8]) -> Result<(), StoreError> {
        match (self.0)(method, key) {
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
