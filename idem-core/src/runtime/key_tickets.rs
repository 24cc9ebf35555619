//! The places of a delivery in the queues of the keys of its message.

use std::hash::Hash;

use smallvec::SmallVec;

use super::key_queue::{KeyQueue, KeyTicket};

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
            let place = match held.iter().position(|place| queue.is_of(place, key)) {
                Some(at) => held.swap_remove(at),
                None => queue.place(key),
            };
            let has_turn = place.is_first();
            self.0.push(place);
            if !has_turn {
                return false;
            }
        }
        true
    }

    /// Returns whether a place is held for this key.
    pub(crate) fn contain(&self, queue: &KeyQueue, key: impl Hash + Copy) -> bool {
        self.0.iter().any(|place| queue.is_of(place, key))
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
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_copy_that_waited_keeps_its_place_before_the_copies_behind_it() {
        let (queue, mut copy) = (KeyQueue::default(), KeyTickets::default());
        let running = queue.place("a");
        assert!(!copy.take(&queue, ["a"]));
        let behind = queue.place("a");
        drop(running);
        assert!(copy.turn().now_or_never().is_some());

        // It starts over, and does not queue again behind the other copy.
        assert!(copy.contain(&queue, "a") && !copy.contain(&queue, "b"));
        assert!(copy.take(&queue, ["a"]) && !behind.is_first());
        copy.clear();
        assert!(behind.is_first());
    }

    #[test]
    fn a_copy_for_several_handlers_keeps_the_places_before_the_one_it_waits_for() {
        let (queue, mut copy) = (KeyQueue::default(), KeyTickets::default());
        let running = queue.place("b");
        assert!(!copy.take(&queue, ["a", "b", "c"]));
        let behind = queue.place("a");
        drop(running);
        assert!(copy.turn().now_or_never().is_some() && copy.take(&queue, ["a", "b", "c"]));
        assert!(!behind.is_first() && !queue.place("c").is_first());
    }

    #[test]
    fn a_delivery_whose_key_differs_from_one_decoding_to_the_next_waits_for_one_key_only() {
        let (queue, mut one, mut other) = (KeyQueue::default(), KeyTickets::default(), KeyTickets::default());
        assert!(one.take(&queue, ["a"]) && other.take(&queue, ["b"]));
        assert!(!one.take(&queue, ["b"]));
        assert!(other.take(&queue, ["a"]), "they would wait for each other without end");
    }
}
