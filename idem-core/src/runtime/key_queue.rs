//! Queues by key, in which waiters get each key one after another.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// A first-in, first-out queue for each key. It is in memory: a waiter has no connection, row or transaction.
///
/// Keys are identified by their hash. Two keys with the same hash wait for each other, which is slower but harmless.
#[derive(Clone, Default)]
pub(crate) struct KeyQueue(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queues: Mutex<Queues>,
    hash: RandomState,
}

/// The waiters for each key that is held. A queue without waiters takes no allocation.
type Queues = HashMap<u64, VecDeque<Turn>, RandomState>;

/// The turn of a waiter. It has no permits, and is closed under the lock of the queues when the waiter leaves its queue to hold
/// the key.
type Turn = Arc<Semaphore>;

impl KeyQueue {
    /// Returns the last place in the queue of this key.
    pub(crate) fn place(&self, key: impl Hash) -> KeyTicket {
        let key = self.0.hash.hash_one(key);
        let turn = match self.0.queues.lock().entry(key) {
            Entry::Vacant(queue) => {
                queue.insert(VecDeque::new());
                None
            }
            Entry::Occupied(mut queue) => {
                let turn = Turn::new(Semaphore::new(0));
                queue.get_mut().push_back(turn.clone());
                Some(turn)
            }
        };
        KeyTicket { queue: self.0.clone(), key, turn }
    }

    /// Returns a place in the queue of this key if the queue has none.
    pub(crate) fn first_place(&self, key: impl Hash) -> Option<KeyTicket> {
        let place = self.place(key);
        place.is_first().then_some(place)
    }

    /// Returns whether this is a place in the queue of this key.
    pub(crate) fn is_of(&self, place: &KeyTicket, key: impl Hash) -> bool {
        place.key == self.0.hash.hash_one(key)
    }
}

/// A place in the queue of a key. Dropping it advances the queue.
pub(crate) struct KeyTicket {
    queue: Arc<Shared>,
    key: u64,
    /// `None` if the queue was empty.
    turn: Option<Turn>,
}

impl KeyTicket {
    /// Waits until all earlier places have left the queue. Cancel safe.
    pub(crate) async fn turn(&self) {
        if let Some(turn) = &self.turn {
            // It ends with the error of a closed semaphore. A place that becomes the first stays the first.
            drop(turn.acquire().await);
        }
    }

    /// Returns whether all earlier places have left the queue.
    pub(crate) fn is_first(&self) -> bool {
        self.turn.as_ref().is_none_or(|turn| turn.is_closed())
    }
}

impl Drop for KeyTicket {
    fn drop(&mut self) {
        let mut queues = self.queue.queues.lock();
        let Entry::Occupied(mut queue) = queues.entry(self.key) else { return };
        let waiting = queue.get_mut();
        // Under the lock, so that a turn that comes meanwhile is passed on.
        if let Some(turn) = self.turn.as_ref().filter(|_| !self.is_first()) {
            waiting.retain(|other| !Arc::ptr_eq(other, turn));
            return;
        }
        match waiting.pop_front() {
            Some(next) => next.close(),
            None => drop(queue.remove()),
        }
    }
}

#[cfg(test)]
mod tests;
