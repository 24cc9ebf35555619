//! Single flight: one delivery of a key at a time in this process.

use std::collections::hash_map::{Entry, RandomState};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::Key;
use crate::store::HandlerId;

/// For each key in flight, by its hash, who waits for it. A queue in which nobody waits takes no allocation. Two keys of one
/// hash wait for each other, which is slower and does no harm.
type Waiting = HashMap<u64, VecDeque<Arc<Notify>>, BuildHasherDefault<Hashed>>;

/// The hash of what is one already.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The keys that are in flight. A second delivery of one waits here, in memory, without a connection.
#[derive(Default)]
pub(crate) struct Flights {
    slots: Mutex<Waiting>,
    hash: RandomState,
}

impl Flights {
    /// Waits until no other delivery of this key is in flight. Cancel safe.
    pub(crate) async fn enter(&self, handler: HandlerId, key: &Key) -> Flight<'_> {
        // Made before the wait, so that a waiter that is dropped leaves its queue as well.
        let flight = self.join(handler, key);
        if let Some(turn) = &flight.turn {
            turn.notified().await;
        }
        flight
    }

    /// The key, if no other delivery of it is in flight.
    pub(crate) fn try_enter(&self, handler: HandlerId, key: &Key) -> Option<Flight<'_>> {
        let id = self.hash.hash_one((handler, key));
        let mut slots = lock(&self.slots);
        if slots.contains_key(&id) {
            return None;
        }
        slots.insert(id, VecDeque::new());
        Some(Flight { slots: &self.slots, id, turn: None })
    }

    /// The key, or a place behind those that have it and wait for it.
    fn join(&self, handler: HandlerId, key: &Key) -> Flight<'_> {
        let id = self.hash.hash_one((handler, key));
        let turn = match lock(&self.slots).entry(id) {
            Entry::Vacant(slot) => {
                slot.insert(VecDeque::new());
                None
            }
            Entry::Occupied(mut slot) => {
                let turn = Arc::new(Notify::new());
                slot.get_mut().push_back(turn.clone());
                Some(turn)
            }
        };
        Flight { slots: &self.slots, id, turn }
    }
}

/// A key in flight, or a wait for one, until it is dropped.
pub(crate) struct Flight<'a> {
    slots: &'a Mutex<Waiting>,
    id: u64,
    /// Rung when whoever had the key before has left. It is out of the queue then.
    turn: Option<Arc<Notify>>,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut slots = lock(self.slots);
        let Entry::Occupied(mut slot) = slots.entry(self.id) else { return };
        let waiting = slot.get_mut();
        let place = self.turn.as_ref().and_then(|turn| waiting.iter().position(|other| Arc::ptr_eq(other, turn)));
        if let Some(place) = place {
            waiting.remove(place);
            return;
        }
        match waiting.pop_front() {
            Some(next) => next.notify_one(),
            None => drop(slot.remove()),
        }
    }
}

fn lock(slots: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
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
        assert_eq!(lock(&flights.slots).len(), 1, "only the other handler's key is in flight");
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
        assert!(lock(&flights.slots).is_empty());
    }
    #[tokio::test]
    async fn a_key_that_was_handed_to_a_dropped_waiter_goes_on_to_the_next() {
        let flights = Flights::default();
        let (handler, key) = (HandlerId(1), Key::of("a").unwrap());
        let first = flights.enter(handler, &key).await;
        let mut second = Box::pin(flights.enter(handler, &key));
        let mut third = Box::pin(flights.enter(handler, &key));
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        assert!(futures_util::poll!(third.as_mut()).is_pending());
        drop(first);
        assert!(flights.try_enter(handler, &key).is_none(), "the key belongs to the second");
        assert!(futures_util::poll!(third.as_mut()).is_pending());
        drop(second);
        drop(third.await);
        assert!(lock(&flights.slots).is_empty());
    }
}
