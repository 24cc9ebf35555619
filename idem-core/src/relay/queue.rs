//! The messages that a relay has read, by key.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

use crate::Key;
use crate::store::{LaneLook, OutboxRow};

use super::delays::Delays;
use super::destinations::Destinations;
use super::entry::{Entry, Place};
use super::known::Known;
use super::of_key::OfKey;
use super::ready::Ready;
use super::room::Room;

/// The messages that were read and are not deleted yet.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// All of them.
    pub(super) known: Known,
    /// Those with a key.
    pub(super) keys: HashMap<Key, OfKey>,
    /// How many of them wait behind others of their key.
    pub(super) behind: usize,
    pub(super) room: Room,
    /// Whether unread messages of a key can be read that could not before.
    pub(super) goes_on: bool,
    /// The lanes of which the last read brought only a part of the unread messages of keys. It is the turn of other keys.
    pub(super) others: BTreeSet<u8>,
    pub(super) ready: Ready,
    pub(super) destinations: Destinations,
    pub(super) delays: Delays,
}

impl Queue {
    /// Returns the queue of a relay that publishes so many messages at a time.
    pub(super) fn new(concurrency: usize) -> Self {
        Self { room: Room::new(concurrency), ..Self::default() }
    }

    /// Adds what was read, in its order. Returns how many messages are new.
    pub(super) fn add(&mut self, rows: Vec<OutboxRow>, now: Instant) -> usize {
        let before = self.known.len();
        self.delays.read();
        for row in rows {
            let key = row.message.key().cloned();
            if self.known.contains(row.id) || key.as_ref().is_some_and(|key| self.leaves_out(key, row.id)) {
                continue;
            }
            self.known.insert(row.id, row.lane, row.message.message().size());
            let tries = self.delays.tries(row.id);
            let staged = now.checked_sub(row.age);
            let message = Arc::new(row.message);
            let entry = Entry { lane: row.lane, id: row.id, message, staged, tries, place: Place::Any };
            match key {
                // Its first attempt was made by another relay, or before this one took the lane.
                _ if !row.due.is_zero() => self.delay(&entry, now, row.due),
                None => self.ready.push(entry),
                Some(key) => self.add_to(&key, entry),
            }
        }
        self.known.len().saturating_sub(before)
    }

    /// Returns whether a message is one of those of its key that are not kept.
    fn leaves_out(&self, key: &Key, id: i64) -> bool {
        self.keys.get(key).and_then(|of_key| of_key.unread.as_ref()).is_some_and(|unread| unread.from <= id)
    }

    fn add_to(&mut self, key: &Key, entry: Entry) {
        let here = self.here();
        let of_key = self.keys.entry(key.clone()).or_insert_with(|| OfKey::new(entry.lane));
        match of_key.insert(entry, here) {
            None => self.behind += 1,
            Some(last) => {
                self.known.remove(last.id);
                self.delays.forget_tries(last.id);
            }
        }
        self.start_next(key);
    }

    /// Makes the next message of a key ready, if none is under way, and forgets a key of which there is none.
    fn start_next(&mut self, key: &Key) {
        let Some(of_key) = self.keys.get_mut(key) else { return };
        if of_key.under_way {
            return;
        }
        let read_on = of_key.reads_on();
        match of_key.waiting.pop_front() {
            Some(next) => {
                of_key.under_way = true;
                self.behind -= 1;
                self.ready.push(next);
                self.goes_on |= !read_on && of_key.reads_on();
            }
            None if of_key.is_done() => drop(self.keys.remove(key)),
            None => {}
        }
    }

    /// Takes the next message to publish. `has_place` says whether there is a place for one of which an earlier attempt
    /// got no answer.
    pub(super) fn next(&mut self, has_place: bool) -> Option<Entry> {
        self.ready.next(has_place)
    }

    /// Lets the next message of a key go on, because this one is published.
    pub(super) fn advance(&mut self, entry: &Entry) {
        self.delays.forget_tries(entry.id);
        self.end(entry);
    }

    /// Records that a message is not under way any more.
    pub(super) fn end(&mut self, entry: &Entry) {
        let Some(key) = entry.key() else { return };
        if let Some(of_key) = self.keys.get_mut(key) {
            of_key.under_way = false;
            if of_key.is_aside {
                of_key.is_aside = self.destinations.hangs(entry.message.to());
                self.goes_on |= of_key.reads_on();
            }
            self.start_next(key);
        }
    }

    /// Keeps the key of a message that has failed, until [`delay`](Self::delay) or [`give_up`](Self::give_up). Messages
    /// behind it are forgotten, and read again later.
    pub(super) fn hold(&mut self, entry: &Entry) {
        self.delays.forget_tries(entry.id);
        self.hold_key(entry);
        self.end(entry);
    }

    pub(super) fn hold_key(&mut self, entry: &Entry) {
        let Some(key) = entry.key().cloned() else { return };
        let of_key = self.keys.entry(key).or_insert_with(|| OfKey::new(entry.lane));
        // Messages in front of it that are unread stay unread.
        of_key.leave(entry.id);
        let behind = of_key.waiting.partition_point(|other| other.id < entry.id);
        for later in of_key.waiting.split_off(behind) {
            self.behind -= 1;
            self.known.remove(later.id);
        }
        match of_key.held.replace(entry.id) {
            // It is in front of this one.
            Some(held) if held < entry.id => of_key.held = Some(held),
            // It is behind this one.
            Some(held) if held > entry.id => {
                self.known.remove(held);
                self.delays.remove(held);
            }
            _ => {}
        }
    }

    /// Lets the key of a message go on that was given up.
    pub(super) fn give_up(&mut self, entry: &Entry) {
        self.known.remove(entry.id);
        self.delays.forget_tries(entry.id);
        self.release(entry.key(), entry.id);
    }

    /// Lets a key go on that waited for this message. Returns whether it did.
    pub(super) fn release(&mut self, key: Option<&Key>, id: i64) -> bool {
        let Some(key) = key else { return false };
        let Some(of_key) = self.keys.get_mut(key).filter(|of_key| of_key.held == Some(id)) else { return false };
        of_key.held = None;
        self.goes_on = true;
        self.start_next(key);
        true
    }

    /// Keeps a message that is not published in its place in front of its key. It does not wait.
    pub(super) fn put_back(&mut self, entry: Entry) {
        self.ready.put_back(entry);
    }

    /// Forgets a message that is not published, because another relay is to publish it.
    pub(super) fn leave(&mut self, entry: &Entry) {
        self.forget([entry.id]);
        self.end(entry);
    }

    /// Forgets messages that are deleted.
    pub(super) fn forget(&mut self, ids: impl IntoIterator<Item = i64>) {
        for id in ids {
            self.known.remove(id);
            self.delays.forget_tries(id);
        }
    }

    /// Drops all messages of lanes that are given back, except those that are being published or not deleted yet.
    pub(super) fn drop_ready(&mut self, lanes: &BTreeSet<u8>) {
        if lanes.is_empty() {
            return;
        }
        let mut stays = |entry: &Entry| {
            let stays = !lanes.contains(&entry.lane);
            if !stays {
                self.known.remove(entry.id);
                self.delays.forget_tries(entry.id);
            }
            stays
        };
        self.ready.retain(&mut stays);
        self.destinations.retain(&mut stays);
        for of_key in self.keys.values_mut() {
            let before = of_key.waiting.len();
            of_key.waiting.retain(&mut stays);
            self.behind -= before - of_key.waiting.len();
        }
        self.delays.remove_lanes(lanes).into_iter().for_each(|id| self.known.remove(id));
    }

    /// Forgets all messages of these lanes. The results of those that are being published must not get here any more.
    pub(super) fn drop_lanes(&mut self, lanes: &BTreeSet<u8>) {
        self.drop_ready(lanes);
        self.known.remove_lanes(lanes);
        self.others.retain(|lane| !lanes.contains(lane));
        self.keys.retain(|_, of_key| !lanes.contains(&of_key.lane));
    }

    /// The ids of all messages that a read from these places need not bring.
    pub(super) fn known(&self, looks: &[LaneLook]) -> Vec<i64> {
        self.known.ids(looks)
    }

    /// The lanes of all messages here.
    pub(super) fn lanes(&self) -> BTreeSet<u8> {
        self.known.lanes()
    }

    /// How many messages are here, without those that wait for their next attempt, or are aside.
    pub(super) fn len(&self) -> usize {
        self.known.len().saturating_sub(self.delayed() + self.destinations.len())
    }

    /// How many of these do not wait behind another one of their key.
    pub(super) fn firsts(&self) -> usize {
        self.len().saturating_sub(self.behind)
    }

    /// The bytes of all messages here, without those that are aside.
    pub(super) fn bytes(&self) -> usize {
        self.known.bytes().saturating_sub(self.destinations.bytes())
    }
}

#[cfg(test)]
pub(super) mod tests;
