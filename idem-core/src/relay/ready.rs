//! The messages that can be published.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::entry::Entry;
use super::hanging::Hanging;

/// The messages that can be published.
#[derive(Debug, Default)]
pub(super) struct Ready {
    fresh: VecDeque<Entry>,
    /// Those of which an earlier attempt got no answer.
    again: VecDeque<Entry>,
    hanging: Hanging,
}

/// The next message.
#[derive(Debug)]
pub(super) enum Next {
    Publish(Entry),
    /// Its destination hangs, and there is no place for it.
    SetAside(Entry),
}

impl Ready {
    pub(super) fn push(&mut self, entry: Entry) {
        if entry.tries > 0 { self.again.push_back(entry) } else { self.fresh.push_back(entry) }
    }

    pub(super) fn put_back(&mut self, entry: Entry) {
        if entry.tries > 0 { self.again.push_front(entry) } else { self.fresh.push_front(entry) }
    }

    /// Takes the next message. `doubtful` says whether it may be one that may get no answer.
    pub(super) fn next(&mut self, doubtful: bool) -> Option<Next> {
        if doubtful && let Some(again) = self.again.pop_front() {
            return Some(Next::Publish(Entry { doubtful, ..again }));
        }
        let fresh = self.fresh.pop_front()?;
        let hangs = self.hanging.contains(fresh.message.to());
        let entry = Entry { doubtful: hangs, ..fresh };
        Some(if hangs && !doubtful { Next::SetAside(entry) } else { Next::Publish(entry) })
    }

    /// Records that a message got no answer in time: most likely, others to the same destination get none either.
    pub(super) fn late(&mut self, entry: &Entry, now: Instant) {
        self.hanging.late(entry.message.to(), now);
    }

    /// Records that a message got an answer.
    pub(super) fn answered(&mut self, entry: &Entry) {
        self.hanging.answered(entry.message.to());
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
