//! Wakes relays in the same process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::store::OutboxId;

/// Wakes the relays of this process as soon as a transaction with staged messages is committed. Relays of other
/// processes poll. It also knows how large a message may be that they publish. The clones of a store share one bell.
#[derive(Debug, Clone, Default)]
pub struct Bell(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    rung: watch::Sender<()>,
    limits: Mutex<HashMap<OutboxId, usize>>,
}

impl Bell {
    /// Wakes all relays.
    pub fn ring(&self) {
        self.0.rung.send_replace(());
    }

    /// Returns a receiver, which sees each ring from now on.
    pub fn listen(&self) -> watch::Receiver<()> {
        self.0.rung.subscribe()
    }

    /// Sets the size of the largest message that the relay of an outbox can publish.
    pub(crate) fn set_limit(&self, outbox: OutboxId, limit: Option<usize>) {
        match limit {
            Some(limit) => self.limits().insert(outbox, limit),
            None => self.limits().remove(&outbox),
        };
    }

    /// The size of the largest message that the relay of an outbox can publish, if a relay of this process knows it.
    pub(crate) fn limit(&self, outbox: OutboxId) -> Option<usize> {
        self.limits().get(&outbox).copied()
    }

    fn limits(&self) -> MutexGuard<'_, HashMap<OutboxId, usize>> {
        self.0.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
