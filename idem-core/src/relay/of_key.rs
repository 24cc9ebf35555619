//! The messages of one key.

use std::collections::VecDeque;

use super::entry::Entry;

/// The messages of one key. One at a time is published, and the one with the lowest id is the next. It exists as long as
/// there is one.
#[derive(Debug)]
pub(super) struct OfKey {
    pub(super) lane: u8,
    /// Those behind the one that is under way, by id.
    pub(super) waiting: VecDeque<Entry>,
    /// Whether one is ready or being published.
    pub(super) under_way: bool,
    /// The one that waits for its next attempt. Those behind it are neither kept nor read.
    pub(super) held: Option<i64>,
}

impl OfKey {
    pub(super) fn new(lane: u8) -> Self {
        Self { lane, waiting: VecDeque::new(), under_way: false, held: None }
    }

    /// Adds a message in its place. Returns the last one, if that is more than are kept.
    pub(super) fn insert(&mut self, entry: Entry, most: usize) -> Option<Entry> {
        let place = self.waiting.partition_point(|other| other.id < entry.id);
        self.waiting.insert(place, entry);
        if self.waiting.len() > most { self.waiting.pop_back() } else { None }
    }
}
