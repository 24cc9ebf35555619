//! Wakes relays in the same process.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::store::OutboxId;

/// Wakes the relays of this process as soon as a transaction with staged messages is committed. Relays of other
/// processes poll. It also knows how large a message may be that they publish. The clones of a store share one notifier.
#[derive(Debug, Clone, Default)]
pub struct Notifier(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    rung: watch::Sender<()>,
    limits: Mutex<Vec<(OutboxId, usize)>>,
}

impl Notifier {
    /// Wakes all relays.
    pub fn notify(&self) {
        self.0.rung.send_replace(());
    }

    /// Returns a receiver, which sees each ring from now on.
    pub fn listen(&self) -> watch::Receiver<()> {
        self.0.rung.subscribe()
    }

    /// Sets the size of the largest message that a relay of an outbox can publish, if it knows it, until what this returns
    /// is dropped.
    pub(crate) fn set_limit(&self, outbox: OutboxId, limit: Option<usize>) -> impl Drop + use<> {
        let limit = limit.map(|limit| (outbox, limit));
        self.0.limits.lock().extend(limit);
        scopeguard::guard(self.clone(), move |notifier| {
            let mut limits = notifier.0.limits.lock();
            if let Some(place) = limits.iter().position(|of| Some(*of) == limit) {
                limits.swap_remove(place);
            }
        })
    }

    /// The size of the largest message that each relay of an outbox can publish, as far as relays of this process know it.
    pub(crate) fn limit(&self, outbox: OutboxId) -> Option<usize> {
        self.0.limits.lock().iter().filter(|(of, _)| *of == outbox).map(|(_, limit)| *limit).min()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_limit_holds_as_long_as_a_relay_has_it() {
        let notifier = Notifier::default();
        let [one, other] = [1, 2].map(|number| OutboxId { number, namespace: Uuid::nil() });
        let limits = [Some(9), Some(7), None].map(|limit| notifier.clone().set_limit(one, limit));
        assert_eq!((notifier.limit(one), notifier.limit(other)), (Some(7), None));
        let [nine, seven, none] = limits;
        drop((seven, none));
        assert_eq!(notifier.limit(one), Some(9));
        drop(nine);
        assert_eq!(notifier.limit(one), None);
    }
}
