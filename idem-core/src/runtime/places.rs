//! The places that a delivery holds in queues of keys.

use std::hash::Hash;

use super::key_queue::{KeyQueue, KeyTicket};

/// The places that a delivery holds while it waits or runs. Dropping them lets others continue.
#[derive(Default)]
pub(crate) struct Places {
    /// Its place in the queue of its ordering key.
    pub(crate) order: Option<KeyTicket>,
    /// Its places in the queues of its message's keys, in claim order: one for each handler.
    pub(crate) keys: Keys,
}

/// Places in the queues of keys. A delivery that waited for a key keeps it until it has run: if it queued again, two
/// copies could wait for each other in turn, without end.
#[derive(Default)]
pub(crate) struct Keys(Vec<KeyTicket>);

impl Keys {
    /// Takes the place that is held for this key, or the last one in its queue.
    pub(crate) fn take_or_queue(&mut self, queue: &KeyQueue, key: impl Hash + Copy) -> KeyTicket {
        match self.0.iter().position(|held| queue.is_of(held, key)) {
            Some(at) => self.0.remove(at),
            None => queue.place(key),
        }
    }

    /// Returns whether a place is held for this key.
    pub(crate) fn contain(&self, queue: &KeyQueue, key: impl Hash + Copy) -> bool {
        self.0.iter().any(|held| queue.is_of(held, key))
    }

    pub(crate) fn push(&mut self, place: KeyTicket) {
        self.0.push(place);
    }

    /// Waits for the turn of the last place; the others have theirs. Cancel safe.
    pub(crate) async fn turn(&self) {
        if let Some(last) = self.0.last() {
            last.turn().await;
        }
    }
}

impl From<Option<KeyTicket>> for Places {
    fn from(order: Option<KeyTicket>) -> Self {
        Self { order, keys: Keys::default() }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_copy_that_waited_keeps_its_place_before_the_copies_behind_it() {
        let (queue, mut waited) = (KeyQueue::default(), Keys::default());
        let running = queue.place("a");
        let mine = waited.take_or_queue(&queue, "a");
        assert!(!mine.is_first());
        waited.push(mine);
        let behind = queue.place("a");
        drop(running);
        assert!(waited.turn().now_or_never().is_some());

        // It starts over, and does not queue again behind the other copy.
        assert!(waited.contain(&queue, "a") && !waited.contain(&queue, "b"));
        let mine = waited.take_or_queue(&queue, "a");
        assert!(mine.is_first() && !behind.is_first());
        drop(mine);
        assert!(behind.is_first());
    }

    #[test]
    fn a_copy_for_several_handlers_keeps_the_places_before_the_one_it_waits_for() {
        let (queue, mut waited) = (KeyQueue::default(), Keys::default());
        let running = queue.place("b");
        for key in ["a", "b"] {
            waited.push(queue.place(key));
        }
        assert!(waited.turn().now_or_never().is_none());
        let behind = queue.place("a");
        drop(running);
        assert!(waited.turn().now_or_never().is_some() && !behind.is_first());
    }
}
