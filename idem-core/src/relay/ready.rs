//! The messages that can be published.

use std::collections::VecDeque;

use super::entry::{Entry, Place};

/// The messages that can be published.
#[derive(Debug, Default)]
pub(super) struct Ready {
    fresh: VecDeque<Entry>,
    /// Those of which an earlier attempt got no answer.
    again: VecDeque<Entry>,
}

impl Ready {
    pub(super) fn push(&mut self, entry: Entry) {
        if entry.tries > 0 { self.again.push_back(entry) } else { self.fresh.push_back(entry) }
    }

    pub(super) fn put_back(&mut self, entry: Entry) {
        if entry.tries > 0 { self.again.push_front(entry) } else { self.fresh.push_front(entry) }
    }

    /// Takes the next message. `has_place` says whether it may be one of which an earlier attempt got no answer.
    pub(super) fn next(&mut self, has_place: bool) -> Option<Entry> {
        let again = if has_place { self.again.pop_front() } else { None };
        let again = again.map(|again| Entry { place: Place::Again, ..again });
        again.or_else(|| Some(Entry { place: Place::Any, ..self.fresh.pop_front()? }))
    }

    /// How many messages are here of which an earlier attempt got no answer.
    pub(super) fn again(&self) -> usize {
        self.again.len()
    }

    pub(super) fn retain(&mut self, mut stays: impl FnMut(&Entry) -> bool) {
        self.fresh.retain(&mut stays);
        self.again.retain(stays);
    }
}
