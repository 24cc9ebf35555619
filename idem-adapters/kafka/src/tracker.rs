//! Tracks which deliveries of a partition are finished. Handles only offsets, and is independent of the client.

use std::collections::VecDeque;

/// The deliveries of one partition since its assignment, ordered by offset.
///
/// Committing an offset to Kafka acks everything below it. Therefore only the finished prefix counts: the longest run
/// of finished deliveries from the first one on. Offsets have gaps (compaction, transaction markers), so the prefix is
/// determined from the delivered offsets and never by counting.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    /// The offsets from the first unfinished one on, and whether each is finished.
    entries: VecDeque<(i64, bool)>,
    /// The last offset of the finished prefix.
    finished: Option<i64>,
    /// The last offset that was delivered.
    delivered: Option<i64>,
}

impl Tracker {
    /// Adds a delivery. Returns `false` if its offset is not higher than the last one; it is then not counted again.
    pub(crate) fn deliver(&mut self, offset: i64) -> bool {
        if self.delivered.is_some_and(|last| offset <= last) {
            return false;
        }
        self.delivered = Some(offset);
        self.entries.push_back((offset, false));
        true
    }

    /// Marks a delivery as finished. Returns `false` if there is no unfinished delivery with this offset.
    pub(crate) fn finish(&mut self, offset: i64) -> bool {
        let Ok(at) = self.entries.binary_search_by_key(&offset, |(offset, _)| *offset) else { return false };
        let fresh = self.entries.get_mut(at).is_some_and(|(_, finished)| !std::mem::replace(finished, true));
        while let Some((offset, true)) = self.entries.front() {
            self.finished = Some(*offset);
            self.entries.pop_front();
        }
        fresh
    }

    /// Counts everything below this offset as finished, if no delivery is unfinished: the client has passed over records
    /// that are never delivered.
    pub(crate) fn pass(&mut self, next: i64) {
        if self.entries.is_empty() {
            self.finished = self.finished.max(Some(next - 1));
        }
    }

    /// The last offset of the finished prefix.
    pub(crate) fn finished(&self) -> Option<i64> {
        self.finished
    }

    /// The last offset that was delivered.
    pub(crate) fn delivered(&self) -> Option<i64> {
        self.delivered
    }

    /// The number of deliveries beyond the finished prefix.
    pub(crate) fn reach(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Offsets in order, with gaps, and the order in which they finish (some never do).
    fn work() -> impl Strategy<Value = (Vec<i64>, Vec<i64>)> {
        prop::collection::btree_set(0..200i64, 0..60).prop_flat_map(|offsets: BTreeSet<i64>| {
            let offsets: Vec<i64> = offsets.into_iter().collect();
            let finishing = prop::sample::subsequence(offsets.clone(), 0..=offsets.len()).prop_shuffle();
            (Just(offsets), finishing)
        })
    }

    proptest! {
        #[test]
        fn nothing_unfinished_is_ever_below_the_prefix((offsets, finishing) in work(), early in 0..60usize) {
            let (mut tracker, mut done) = (Tracker::default(), BTreeSet::new());
            let mut coming = offsets.iter();
            for offset in coming.by_ref().take(early) {
                prop_assert!(tracker.deliver(*offset));
            }
            let mut later = Vec::new();
            for offset in finishing {
                let here = tracker.delivered().is_some_and(|last| offset <= last);
                prop_assert_eq!(tracker.finish(offset), here);
                if here { done.insert(offset); } else { later.push(offset); }
                check(&tracker, &offsets, &done)?;
            }
            for offset in coming {
                prop_assert!(tracker.deliver(*offset));
            }
            for offset in later {
                prop_assert!(tracker.finish(offset));
                prop_assert!(!tracker.finish(offset), "twice");
                done.insert(offset);
                check(&tracker, &offsets, &done)?;
            }
        }
    }

    fn check(tracker: &Tracker, offsets: &[i64], done: &BTreeSet<i64>) -> Result<(), TestCaseError> {
        let delivered = || offsets.iter().filter(|offset| tracker.delivered().is_some_and(|last| **offset <= last));
        let prefix: Vec<_> = delivered().take_while(|offset| done.contains(offset)).collect();
        prop_assert_eq!(tracker.finished(), prefix.last().map(|offset| **offset));
        prop_assert_eq!(tracker.reach(), delivered().count() - prefix.len());
        Ok(())
    }

    #[test]
    fn a_delivery_that_comes_twice_counts_once() {
        let mut tracker = Tracker::default();
        assert!(tracker.deliver(7));
        assert!(!tracker.deliver(7) && !tracker.deliver(6));
        assert!(tracker.finish(7) && !tracker.finish(7) && !tracker.finish(8));
        assert_eq!((tracker.finished(), tracker.reach()), (Some(7), 0));
    }
}
