//! A store that fails at the word of a test.

use std::sync::Arc;

use idem_core::store::Fault;

use crate::tapped_store::StoreTap;

/// What a method does instead of its work.
pub(super) enum Do {
    Work,
    Fail(Fault),
    Panic,
    Hang,
}

/// Asks the test before the store does anything, with the name of the method, and the key of the message where it is about
/// one.
#[derive(Clone)]
pub(super) struct Faulty(Arc<Hook>);

type Hook = dyn Fn(&'static str, &[u8]) -> Do + Send + Sync;

impl Faulty {
    pub(super) fn new(hook: impl Fn(&'static str, &[u8]) -> Do + Send + Sync + 'static) -> Self {
        Self(Arc::new(hook))
    }
}

impl StoreTap for Faulty {
    async fn before(&self, method: &'static str, key: &[u8]) -> Result<(), Fault> {
        match (self.0)(method, key) {
            Do::Work => Ok(()),
            Do::Fail(fault) => Err(fault),
            Do::Panic => panic!("the store panics"),
            Do::Hang => std::future::pending().await,
        }
    }
}
