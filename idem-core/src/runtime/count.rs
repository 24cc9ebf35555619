//! The number of deliveries that the database refuses.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The number of refused deliveries, and its maximum, which is the number that may be unsettled. At the maximum no
/// further delivery can be taken.
pub(super) struct Count {
    count: AtomicUsize,
    most: usize,
    /// The maximum at present, which is lower while the source takes less.
    room: AtomicUsize,
}

impl Count {
    pub(super) fn of(most: usize) -> Self {
        Self { count: AtomicUsize::new(0), most, room: AtomicUsize::new(most) }
    }

    pub(super) fn is_full(&self) -> bool {
        self.count.load(Relaxed) >= self.room.load(Relaxed)
    }

    /// Sets how many may be unsettled at present; `None`: as many as ever. Returns whether that has changed.
    pub(super) fn set_room(&self, room: Option<usize>) -> bool {
        let room = room.map_or(self.most, |room| room.clamp(1, self.most));
        // Read first, because this is called for each delivery and nearly always changes nothing.
        self.room.load(Relaxed) != room && self.room.swap(room, Relaxed) != room
    }

    /// Adds one. Returns whether the maximum is now reached.
    pub(super) fn add(&self) -> bool {
        let (held, room) = (self.count.fetch_add(1, Relaxed) + 1, self.room.load(Relaxed));
        let full = held == room;
        if full {
            tracing::error!(
                held,
                "the database refuses every held message, and no more messages can be received: check the \
                 constraints and triggers on idem's tables"
            );
        }
        full
    }

    /// Removes one. Returns whether the maximum was reached until now.
    pub(super) fn remove(&self) -> bool {
        self.count.fetch_sub(1, Relaxed) == self.room.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_full_at_what_may_be_unsettled_at_present() {
        let count = Count::of(2);
        assert!(!count.add() && !count.is_full());
        assert!(count.set_room(Some(1)) && !count.set_room(Some(1)));
        assert!(count.is_full());
        assert!(count.remove() && !count.is_full());
        assert!(count.add() && count.is_full());
        assert!(count.set_room(None) && !count.is_full());
        assert!(count.add() && count.is_full());
        assert!(!count.set_room(Some(9)), "never more than at first");
    }
}
