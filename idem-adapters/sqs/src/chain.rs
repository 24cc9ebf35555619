//! The order of the deliveries of one message group.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The deliveries of one group of a FIFO queue that are under way. SQS hands out no more of a group while some of them are in
/// flight. If one of them ends without being settled, it comes again only after all others, so those behind it must not run.
#[derive(Debug)]
pub(crate) struct Chain {
    next: AtomicU64,
    /// The first place whose delivery ended unsettled.
    broken: AtomicU64,
}

/// The place of a delivery in its group.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    chain: Arc<Chain>,
    number: u64,
}

impl Place {
    /// Records that this delivery ended unsettled.
    pub(crate) fn break_chain(&self) {
        self.chain.broken.fetch_min(self.number, SeqCst);
    }

    /// Returns whether one before this ended unsettled.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.chain.broken.load(SeqCst) < self.number
    }
}

/// The groups that have deliveries under way.
#[derive(Debug, Default)]
pub(crate) struct Chains(Mutex<HashMap<String, Weak<Chain>>>);

impl Chains {
    /// Returns the next place in this group. It must be called in the order of the deliveries. What comes behind a broken
    /// chain is a new one: SQS has delivered from the beginning.
    pub(crate) fn join(&self, group: &str) -> Place {
        let mut chains = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = |chain: &Arc<Chain>| chain.broken.load(SeqCst) == u64::MAX;
        let chain = chains.get(group).and_then(Weak::upgrade).filter(whole).unwrap_or_else(|| {
            // Groups that have ended are removed here, so that there are at most twice as many as are under way.
            if chains.len() == chains.capacity() {
                chains.retain(|_, chain| chain.strong_count() > 0);
            }
            let chain = Arc::new(Chain { next: AtomicU64::new(0), broken: AtomicU64::new(u64::MAX) });
            chains.insert(group.to_owned(), Arc::downgrade(&chain));
            chain
        });
        let number = chain.next.fetch_add(1, SeqCst);
        Place { chain, number }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_an_unsettled_end_is_cut_off_and_what_comes_later_is_not() {
        let chains = Chains::default();
        let [first, second, third] = ["a"; 3].map(|group| chains.join(group));
        let other = chains.join("b");
        second.break_chain();
        third.break_chain();
        let cut: Vec<_> = [&first, &second, &third, &other].map(Place::is_cut_off).into();
        assert_eq!(cut, [false, false, true, false]);
        let again = chains.join("a");
        assert!(!again.is_cut_off());
        first.break_chain();
        assert!(second.is_cut_off() && !again.is_cut_off());
    }

    #[test]
    fn groups_that_have_ended_are_forgotten() {
        let chains = Chains::default();
        for number in 0..10_000 {
            chains.join(&number.to_string());
        }
        assert!(chains.0.lock().unwrap().len() < 100);
    }
}
