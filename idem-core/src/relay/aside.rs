//! How much is set aside because its destination hangs.

use super::entry::Entry;
use super::room::{ASIDE_BYTES, Room};

/// The messages that are aside, with those of them that are being published.
#[derive(Debug, Default)]
pub(super) struct Aside {
    pub(super) messages: usize,
    /// Those of them that have a key. Each read has to leave out its key.
    keyed: usize,
    /// The bytes of all of them.
    pub(super) bytes: usize,
}

impl Aside {
    pub(super) fn add(&mut self, entry: &Entry) {
        self.messages += 1;
        self.keyed += usize::from(entry.key().is_some());
        self.bytes += entry.size();
    }

    pub(super) fn remove(&mut self, entry: &Entry) {
        self.messages -= 1;
        self.keyed -= usize::from(entry.key().is_some());
        self.bytes -= entry.size();
    }

    /// Returns whether a message may be set aside.
    pub(super) fn has_room(&self, entry: &Entry, room: Room) -> bool {
        let has_room_for_keys = entry.key().is_none() || self.keyed < room.0;
        self.messages < room.aside() && has_room_for_keys && self.bytes < ASIDE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uuid::Uuid;

    use super::super::entry::Place;
    use super::*;
    use crate::Outgoing;
    use crate::outbox::StagedMessage;

    fn entry(message: Outgoing) -> Entry {
        let message = Arc::new(StagedMessage::new(Uuid::nil(), message));
        Entry { lane: 0, id: 1, message, staged: None, tries: 0, place: Place::Any }
    }

    #[test]
    fn messages_their_bytes_and_their_keys_are_limited() {
        let (small, large) = (entry(Outgoing::new("a", "")), entry(Outgoing::new("a", vec![0; ASIDE_BYTES])));
        let (keyed, room) = (entry(Outgoing::new("a", "").key("k")), Room(2));
        let mut aside = Aside::default();
        for _ in 0..2 {
            assert!(aside.has_room(&keyed, room));
            aside.add(&keyed);
        }
        assert!(!aside.has_room(&keyed, room) && aside.has_room(&small, room));
        for _ in 2..room.aside() {
            aside.add(&small);
        }
        assert!(!aside.has_room(&small, room));
        aside.remove(&keyed);
        assert!(aside.has_room(&keyed, room) && aside.has_room(&small, room));
        aside.add(&large);
        aside.remove(&small);
        assert!(!aside.has_room(&small, room));
        aside.remove(&large);
        assert_eq!((aside.has_room(&small, room), aside.bytes), (true, 0));
    }
}
