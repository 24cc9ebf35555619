//! Wakes relays in the same process.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::store::OutboxId;

/// Wakes the relays of this process as soon as a transaction with staged messages is committed. Relays of other
/// processes poll. It also knows how large a message may be that they publish. The clones of a store share one bell.
#[derive(Debug, Clone, Default)]
pub struct Bell(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    rung: watch::Sender<()>,
    limits: Mutex<Vec<(OutboxId, usize)>>,
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

    /// Sets the size of the largest message that a relay of an outbox can publish, if it knows it, until what this returns
    /// is dropped.
    pub(crate) fn set_limit(&self, outbox: OutboxId, limit: Option<usize>) -> impl Drop + use<> {
        let limit = limit.map(|limit| (outbox, limit));
        self.0.limits.lock().extend(limit);
        scopeguard::guard(self.clone(), move |bell| {
            let mut limits = bell.0.limits.lock();
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
        let bell = Bell::default();
        let [one, other] = [1, 2].map(|number| OutboxId { number, namespace: Uuid::nil() });
        let limits = [Some(9), Some(7), None].map(|limit| bell.clone().set_limit(one, limit));
        assert_eq!((bell.limit(one), bell.limit(other)), (Some(7), None));
        let [nine, seven, none] = limits;
        drop((seven, none));
        assert_eq!(bell.limit(one), Some(9));
        drop(nine);
        assert_eq!(bell.limit(one), None);
    }
}
