//! Queues by key, in which waiters get each key one after another, and the places of a delivery in them.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use smallvec::SmallVec;
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
    pub(crate) fn enqueue(&self, key: impl Hash) -> KeyTicket {
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
            // The wait ends with the error of a closed semaphore. A place that becomes the first stays the first.
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

/// Places in the queues of keys. A delivery keeps them until the database has answered: if it queued again after each
/// wait, two copies could wait for each other in turn, without end.
#[derive(Default)]
pub(crate) struct KeyTickets(SmallVec<[KeyTicket; 1]>);

impl KeyTickets {
    /// Takes a place in the queue of each of these keys, in their order, up to the first place that has to wait. Places
    /// that are held already are kept; those of other keys are given up. Returns whether each place has its turn.
    pub(crate) fn take<K: Hash + Copy>(&mut self, queue: &KeyQueue, keys: impl IntoIterator<Item = K>) -> bool {
        let mut held = std::mem::take(&mut self.0);
        for key in keys {
            let place = match held.iter().position(|place| place.key == queue.0.hash.hash_one(key)) {
                Some(at) => held.swap_remove(at),
                None => queue.enqueue(key),
            };
            let has_turn = place.is_first();
            self.0.push(place);
            if !has_turn {
                return false;
            }
        }
        true
    }

    /// Gives up all places.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Waits for the turn of the last place; the others have theirs. Cancel safe.
    pub(crate) async fn turn(&self) {
        if let Some(last) = self.0.last() {
            last.turn().await;
        }
    }
}

#[cfg(test)]
mod tests;
