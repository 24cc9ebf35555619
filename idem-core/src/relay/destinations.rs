//! The destinations that give no answer, and the messages that were set aside because theirs hangs.

use std::collections::{HashMap, VecDeque};

use super::entry::{Entry, Place};
use super::room::{ASIDE_BYTES, Room};

/// A destination hangs if so many more of its messages got no answer than were confirmed. Fewer may be messages that never
/// get one, or those of a part of the destination.
const LATE: usize = 16;

/// How many destinations are known at most of which a message got no answer.
const KNOWN: usize = 1000;

/// The destinations that give no answer, and the messages that were set aside because theirs hangs. Such a destination is
/// tried in few places, in turn with others. For each message that it confirms, two more go on in places that are left: so
/// one that answers again has all of these soon, and one that is slow has as many as it can serve. It hangs no more when it
/// confirms a message while no other one waits.
#[derive(Debug, Default)]
pub(super) struct Destinations {
    /// Those of which messages got no answer.
    of: HashMap<String, Destination>,
    /// Those of which messages wait, from the one whose turn is next.
    turns: VecDeque<String>,
    /// Those that have confirmed a message, once for each message that may go on.
    go_on: VecDeque<String>,
    /// How many messages are aside, with those of them that are being published, and the bytes of their payloads.
    messages: usize,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Destination {
    /// How many more messages got no answer than were confirmed.
    late: usize,
    /// The messages that wait. If there are some, it hangs.
    waiting: VecDeque<Entry>,
}

impl Destinations {
    pub(super) fn hangs(&self, to: &str) -> bool {
        self.of.get(to).is_some_and(|of| of.late >= LATE)
    }

    /// Records that a message got no answer in time. Returns whether its destination hangs because of it, and did not
    /// before. Only the first attempt of a message shows that: one that got no answer before may never get one.
    pub(super) fn late(&mut self, entry: &Entry) -> bool {
        let to = entry.message.to();
        if entry.tries > 0 {
            return false;
        }
        if self.of.len() >= KNOWN && !self.hangs(to) {
            self.of.retain(|_, of| of.late >= LATE);
            if self.of.len() >= KNOWN {
                return false;
            }
        }
        self.go_on.retain(|other| other != to);
        let of = self.of.entry(to.to_owned()).or_default();
        of.late += 1;
        of.late == LATE
    }

    /// Records that a message was confirmed. Returns whether its destination had hung, and does so no more.
    pub(super) fn confirmed(&mut self, to: &str) -> bool {
        let Some(of) = self.of.get_mut(to) else { return false };
        if !of.waiting.is_empty() {
            // It may confirm more than there are places for.
            if self.go_on.len() < self.messages {
                self.go_on.extend([to.to_owned(), to.to_owned()]);
            }
            return false;
        }
        let hung = of.late >= LATE;
        of.late -= 1;
        if hung || of.late == 0 {
            self.of.remove(to);
        }
        hung
    }

    /// Returns whether one more message may be set aside.
    pub(super) fn has_room(&self, room: Room) -> bool {
        self.messages < room.aside() && self.bytes < ASIDE_BYTES
    }

    /// Sets a message aside. Its destination hangs.
    pub(super) fn push(&mut self, entry: Entry) {
        self.messages += 1;
        self.bytes += entry.size();
        let to = entry.message.to().to_owned();
        let of = self.of.entry(to.clone()).or_insert(Destination { late: LATE, waiting: VecDeque::new() });
        if of.waiting.is_empty() {
            self.turns.push_back(to);
        }
        of.waiting.push_back(entry);
    }

    /// Takes the first message of the destination whose turn is next.
    pub(super) fn next_in_turn(&mut self) -> Option<Entry> {
        let to = self.turns.pop_front()?;
        self.turns.push_back(to.clone());
        Some(Entry { place: Place::Aside, ..self.take(&to)? })
    }

    /// Takes a message that may go on, because its destination has confirmed others.
    pub(super) fn next_to_go_on(&mut self) -> Option<Entry> {
        while let Some(to) = self.go_on.pop_front() {
            if let Some(entry) = self.take(&to) {
                return Some(Entry { place: Place::GoesOn, ..entry });
            }
        }
        None
    }

    /// Takes the first message of a destination.
    fn take(&mut self, to: &str) -> Option<Entry> {
        let of = self.of.get_mut(to)?;
        let entry = of.waiting.pop_front()?;
        if of.waiting.is_empty() {
            self.turns.retain(|other| other != to);
        }
        Some(entry)
    }

    /// Records that a message is not being published any more.
    pub(super) fn ended(&mut self, entry: &Entry) {
        if matches!(entry.place, Place::Aside | Place::GoesOn) {
            self.messages -= 1;
            self.bytes -= entry.size();
        }
    }

    /// Forgets messages that wait.
    pub(super) fn retain(&mut self, mut stays: impl FnMut(&Entry) -> bool) {
        for of in self.of.values_mut() {
            of.waiting.retain(|entry| {
                let stays = stays(entry);
                if !stays {
                    self.messages -= 1;
                    self.bytes -= entry.size();
                }
                stays
            });
        }
        self.turns.retain(|to| self.of.get(to).is_some_and(|of| !of.waiting.is_empty()));
    }

    /// How many messages are aside, with those of them that are being published.
    pub(super) fn len(&self) -> usize {
        self.messages
    }

    /// The bytes of their payloads.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests;
