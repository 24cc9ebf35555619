//! The destinations that give no answer, and the messages that were set aside because theirs hangs.

use std::collections::{BTreeSet, HashMap, VecDeque};

use tokio::time::Instant;

use super::aside::Aside;
use super::destination::Destination;
use super::entry::Entry;
use super::room::Room;

/// How many destinations are known at most of which a message got no answer.
const KNOWN: usize = 1000;

/// The destinations that give no answer, and the messages that were set aside because theirs hangs. Such a destination is
/// tried with one message at a time, in turn with others, and after a delay that grows. For each message that it confirms,
/// two more go on: so one that answers again soon has all places that there are for it, or its share if others answer as well;
/// and one that is slow has as many as it can serve. It hangs no more when it confirms one that was set aside, and all that
/// wait were tried.
#[derive(Debug, Default)]
pub(super) struct Destinations {
    /// Those of which messages got no answer.
    of: HashMap<String, Destination>,
    /// Those that wait for their turn, by the time when it comes.
    turns: BTreeSet<(Instant, String)>,
    /// Those of which messages may go on, from the one that has waited for the longest time.
    go_on: VecDeque<String>,
    aside: Aside,
}

impl Destinations {
    pub(super) fn hangs(&self, to: &str) -> bool {
        self.of.get(to).is_some_and(Destination::hangs)
    }

    /// Records that a message got no answer in time, which was published at `began`. Returns whether its destination hangs
    /// because of it, and did not before. Only the first attempt of a message shows that, and of one that was not aside: the
    /// others may never get an answer.
    pub(super) fn late(&mut self, entry: &Entry, began: Instant, now: Instant) -> bool {
        let to = entry.message.to();
        if let Some(of) = self.of.get_mut(to).filter(|of| of.hangs()) {
            of.failed(began, now);
            self.go_on.retain(|other| other != to);
            return false;
        }
        if entry.tries > 0 || entry.was_aside() || !self.may_know(to) {
            return false;
        }
        let of = self.of.entry(to.to_owned()).or_default();
        of.late += 1;
        if of.hangs() {
            of.failed(began, now);
        }
        of.hangs()
    }

    /// Returns whether a destination is known, or can be.
    fn may_know(&mut self, to: &str) -> bool {
        if self.of.len() < KNOWN || self.of.contains_key(to) {
            return true;
        }
        self.of.retain(|_, of| of.hangs());
        if self.of.len() >= KNOWN {
            // Their messages are dead letters, or belong to another relay.
            self.of.retain(|_, of| !of.is_idle());
            self.forget_gone();
        }
        self.of.len() < KNOWN
    }

    fn forget_gone(&mut self) {
        self.turns.retain(|(_, to)| self.of.contains_key(to));
        self.go_on.retain(|to| self.of.contains_key(to));
    }

    /// Records that a message was confirmed. If its destination hangs no more because of it, returns those of its messages
    /// that got no answer.
    pub(super) fn confirmed(&mut self, entry: &Entry) -> Option<VecDeque<Entry>> {
        let to = entry.message.to();
        let of = self.of.get_mut(to)?;
        if !of.hangs() {
            of.late -= 1;
            if of.late == 0 {
                self.of.remove(to);
            }
            return None;
        }
        if of.answered() {
            self.go_on.push_back(to.to_owned());
        }
        // One that was not aside may have been published before the destination hung, when none was aside.
        if !entry.was_aside() || !of.has_tried_all() {
            return None;
        }
        let tried = self.of.remove(to)?.into_tried();
        self.forget_gone();
        tried.iter().for_each(|entry| self.aside.remove(entry));
        Some(tried)
    }

    /// Returns whether a message may be set aside.
    pub(super) fn has_room(&self, entry: &Entry, room: Room) -> bool {
        self.aside.has_room(entry, room)
    }

    /// Sets a message aside. Its destination hangs.
    pub(super) fn push(&mut self, entry: Entry, now: Instant) {
        self.aside.add(&entry);
        let to = entry.message.to().to_owned();
        self.of.entry(to.clone()).or_insert_with(Destination::hanging).push(entry);
        self.wait_for_turn(to, now);
    }

    fn wait_for_turn(&mut self, to: String, now: Instant) {
        if let Some(turn) = self.of.get_mut(&to).and_then(|of| of.wait_for_turn(now)) {
            self.turns.insert((turn, to));
        }
    }

    /// When the next turn comes.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.turns.first().map(|(turn, _)| *turn)
    }

    /// Takes a message of the destination whose turn has come first.
    pub(super) fn next_in_turn(&mut self, now: Instant) -> Option<Entry> {
        while self.next_due().is_some_and(|turn| turn <= now) {
            let (_, to) = self.turns.pop_first()?;
            // Its messages may be forgotten.
            if let Some(entry) = self.of.get_mut(&to).and_then(Destination::next_in_turn) {
                return Some(entry);
            }
        }
        None
    }

    /// Takes a message that may go on, because its destination has confirmed others. The destination of which the fewest are
    /// being published comes first: by turns, one that is slow would take the places that a quick one leaves.
    pub(super) fn next_to_go_on(&mut self) -> Option<Entry> {
        loop {
            let going = |to: &String| self.of.get(to).map_or(0, |of| of.going);
            let (at, _) = self.go_on.iter().enumerate().min_by_key(|(_, to)| going(to))?;
            let to = self.go_on.remove(at)?;
            if let Some((entry, more)) = self.of.get_mut(&to).and_then(Destination::next_to_go_on) {
                if more {
                    self.go_on.push_back(to);
                }
                return Some(entry);
            }
        }
    }

    /// Records that a message is not being published any more; after its answer.
    pub(super) fn ended(&mut self, entry: &Entry, now: Instant) {
        if !entry.was_aside() {
            return;
        }
        self.aside.remove(entry);
        let to = entry.message.to();
        if self.of.get_mut(to).is_some_and(|of| of.ended(entry)) {
            self.wait_for_turn(to.to_owned(), now);
        }
    }

    /// Forgets messages that wait.
    pub(super) fn retain(&mut self, mut stays: impl FnMut(&Entry) -> bool) {
        let aside = &mut self.aside;
        let mut is_kept = |entry: &Entry| {
            let is_kept = stays(entry);
            if !is_kept {
                aside.remove(entry);
            }
            is_kept
        };
        self.of.values_mut().for_each(|of| of.retain(&mut is_kept));
    }

    /// How many messages are aside, with those of them that are being published.
    pub(super) fn len(&self) -> usize {
        self.aside.messages
    }

    /// The bytes of these messages.
    pub(super) fn bytes(&self) -> usize {
        self.aside.bytes
    }
}

#[cfg(test)]
mod tests;
