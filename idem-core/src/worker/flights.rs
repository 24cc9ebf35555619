//! Single flight: one delivery of a key at a time in this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::Key;
use crate::store::HandlerId;

type Waiting = HashMap<(HandlerId, Key), Arc<AsyncMutex<()>>>;
type Slots = Mutex<Waiting>;

/// The keys that are in flight. A second delivery of one waits here, in memory, without a connection.
#[derive(Default)]
pub(crate) struct Flights(Arc<Slots>);

impl Flights {
    /// Waits until no other delivery of this key is in flight. Cancel safe.
    pub(crate) async fn enter(&self, handler: HandlerId, key: &Key) -> Flight {
        let id = (handler, *key);
        let slot = lock(&self.0).entry(id).or_default().clone();
        // Made before the wait, so that a waiter that is dropped leaves its slot as well.
        let mut flight = Flight { slots: self.0.clone(), id, guard: None };
        flight.guard = Some(slot.lock_owned().await);
        flight
    }

    /// The key, if no other delivery of it is in flight.
    pub(crate) fn try_enter(&self, handler: HandlerId, key: &Key) -> Option<Flight> {
        let id = (handler, *key);
        let slot = lock(&self.0).entry(id).or_default().clone();
        let mut flight = Flight { slots: self.0.clone(), id, guard: None };
        flight.guard = Some(slot.try_lock_owned().ok()?);
        Some(flight)
    }
}

/// A key in flight, until it is dropped.
pub(crate) struct Flight {
    slots: Arc<Slots>,
    id: (HandlerId, Key),
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut slots = lock(&self.slots);
        self.guard = None;
        // Whoever waits or flies holds a second reference; entering takes it under the same lock.
        if slots.get(&self.id).is_some_and(|slot| Arc::strong_count(slot) == 1) {
            slots.remove(&self.id);
        }
    }
}

fn lock(slots: &Slots) -> std::sync::MutexGuard<'_, Waiting> {
    slots.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_delivery_of_a_key_waits_and_leaves_nothing_behind() {
        let flights = Flights::default();
        let (handler, key) = (HandlerId(1), Key::of("a").unwrap());
        let first = flights.enter(handler, &key).await;
        let _other = flights.enter(HandlerId(2), &key).await;

        let second = flights.enter(handler, &key);
        tokio::pin!(second);
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        drop(first);
        drop(second.await);
        assert_eq!(lock(&flights.0).len(), 1, "only the other handler's key is in flight");
    }

    #[tokio::test]
    async fn a_waiter_that_is_dropped_leaves_nothing_behind() {
        let flights = Flights::default();
        let (handler, key) = (HandlerId(1), Key::of("a").unwrap());
        let first = flights.enter(handler, &key).await;
        {
            let second = flights.enter(handler, &key);
            tokio::pin!(second);
            assert!(futures_util::poll!(second.as_mut()).is_pending());
        }
        drop(first);
        assert!(lock(&flights.0).is_empty());
    }
}
