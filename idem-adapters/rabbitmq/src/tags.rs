//! The unsettled deliveries of one channel. Handles only tags, and is independent of the client.

use std::collections::BTreeSet;

/// The deliveries of one channel that are unsettled, by their tags, which the server counts from 1 on.
///
/// An ack with `multiple` settles everything before it on its channel. It may therefore be sent only where every
/// delivery before it has either been settled or is to be settled by this very ack.
#[derive(Debug, Default)]
pub(crate) struct Tags {
    unsettled: BTreeSet<u64>,
    /// The last tag that was delivered.
    last: u64,
}

impl Tags {
    /// Adds a delivery. Tags have no gaps: if one was never seen here, it counts as unsettled for as long as the
    /// channel lasts.
    pub(crate) fn deliver(&mut self, tag: u64) {
        let next = self.last.saturating_add(1);
        if tag > next {
            self.unsettled.insert(next);
        }
        self.unsettled.insert(tag);
        self.last = self.last.max(tag);
    }

    /// Marks deliveries as settled, or as about to be settled by the next ack. Returns the first one that is left: all
    /// before it are settled.
    pub(crate) fn settle(&mut self, tags: impl IntoIterator<Item = u64>) -> Option<u64> {
        for tag in tags {
            self.unsettled.remove(&tag);
        }
        self.unsettled.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivered(tags: impl IntoIterator<Item = u64>) -> Tags {
        let mut delivered = Tags::default();
        tags.into_iter().for_each(|tag| delivered.deliver(tag));
        delivered
    }

    #[test]
    fn the_first_that_is_left_is_the_lowest_whatever_was_settled_behind_it() {
        let mut tags = delivered(1..=5);
        assert_eq!(tags.settle([3, 5]), Some(1));
        assert_eq!(tags.settle([1]), Some(2));
        assert_eq!(tags.settle([2]), Some(4));
        assert_eq!(tags.settle([4]), None);
        tags.deliver(6);
        assert_eq!(tags.settle([]), Some(6));
        assert_eq!(tags.settle([6]), None);
    }

    #[test]
    fn a_delivery_that_was_never_seen_is_never_settled() {
        let mut tags = delivered([1, 2, 4]);
        assert_eq!(tags.settle([1, 2, 4]), Some(3));
        tags.deliver(5);
        assert_eq!(tags.settle([5]), Some(3));
    }
}
