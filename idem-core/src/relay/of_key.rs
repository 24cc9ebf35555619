//! The messages of one key.

use std::collections::VecDeque;

use super::entry::Entry;
use super::room::Here;
use super::unread::Unread;

/// The messages of one key. One at a time is published, and the one with the lowest id is the next. It exists as long as
/// there is one.
#[derive(Debug)]
pub(super) struct OfKey {
    pub(super) lane: u8,
    /// Those behind the one that is under way, by id.
    pub(super) waiting: VecDeque<Entry>,
    /// Whether one is ready or being published.
    pub(super) under_way: bool,
    /// The one that waits for its next attempt. It and those behind it are unread.
    pub(super) held: Option<i64>,
    /// Those that are not kept, if there may be some.
    pub(super) unread: Option<Unread>,
    /// Whether the one under way was set aside, or one in front of it was, and its destination still hangs. No message is
    /// kept behind one that is aside, and one at a time is read of a key whose next one may be.
    pub(super) is_aside: bool,
}

impl OfKey {
    pub(super) fn new(lane: u8) -> Self {
        Self { lane, waiting: VecDeque::new(), under_way: false, held: None, unread: None, is_aside: false }
    }

    /// Adds a message in its place. If that is more than may be kept, returns the last one, which is unread then.
    pub(super) fn insert(&mut self, entry: Entry, here: Here) -> Option<Entry> {
        if let Some(unread) = &mut self.unread {
            unread.missed = false;
        }
        let place = self.waiting.partition_point(|other| other.id < entry.id);
        self.waiting.insert(place, entry);
        if self.waiting.len() <= self.most(here) {
            return None;
        }
        let last = self.waiting.pop_back()?;
        let kept = self.waiting.len();
        self.leave(last.id).kept = kept;
        Some(last)
    }

    /// Returns how many messages may be kept.
    pub(super) fn most(&self, here: Here) -> usize {
        if self.is_aside {
            return usize::from(!self.under_way);
        }
        here.most(|| self.waiting.iter().map(Entry::size).sum())
    }

    /// Records that the messages from this id on are not kept.
    pub(super) fn leave(&mut self, id: i64) -> &mut Unread {
        let unread = self.unread.get_or_insert_with(|| Unread::new(id));
        unread.add(id);
        unread
    }

    /// Returns whether there are unread messages that can be read: none waits for its next attempt or is aside, and few are
    /// here.
    pub(super) fn reads_on(&self) -> bool {
        let waits = self.held.is_some() || self.is_aside && self.under_way;
        !waits && self.unread.as_ref().is_some_and(|unread| self.waiting.len() <= unread.kept / 2)
    }

    /// Returns whether there are unread messages that can be read, and the last read for them has brought none.
    pub(super) fn is_missed(&self) -> bool {
        self.reads_on() && self.unread.as_ref().is_some_and(|unread| unread.missed)
    }

    /// Returns whether there is no message.
    pub(super) fn is_done(&self) -> bool {
        !self.under_way && self.waiting.is_empty() && self.held.is_none() && self.unread.is_none()
    }
}
