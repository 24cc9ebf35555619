//! Wakes relays in the same process.

use std::sync::Arc;

use tokio::sync::watch;

/// Wakes the relays of this process as soon as a transaction with staged messages is committed. Relays of other
/// processes poll. The clones of a store share one bell.
#[derive(Debug, Clone)]
pub struct Bell(Arc<watch::Sender<()>>);

impl Default for Bell {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(())))
    }
}

impl Bell {
    /// Wakes all relays.
    pub fn ring(&self) {
        self.0.send_replace(());
    }

    /// Returns a receiver, which sees each ring from now on.
    pub fn listen(&self) -> watch::Receiver<()> {
        self.0.subscribe()
    }
}
