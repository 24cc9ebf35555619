//! The messages that a relay has read, by key.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::Key;
use crate::store::OutboxRow;

use super::delays::{Delayed, Delays};
use super::entry::Entry;
use super::known::Known;
use super::of_key::OfKey;
use super::ready::Ready;
use super::room::Room;

/// The messages that were read and are not deleted yet.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// All of them.
    known: Known,
    /// Those with a key.
    pub(super) keys: HashMap<Key, OfKey>,
    /// How many of them wait behind others of their key.
    pub(super) behind: usize,
    pub(super) room: Room,
    /// Whether unread messages of a key can be read that could not before.
    pub(super) goes_on: bool,
    /// The lanes of which the last read brought only a part of the unread messages of keys. It is the turn of other keys.
    pub(super) others: BTreeSet<u8>,
    ready: Ready,
    delays: Delays,
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
            self.known.insert(row.id, row.lane, row.message.payload().len());
            let tries = self.delays.tries(row.id);
            let staged = now.checked_sub(row.age);
            let message = Arc::new(row.message);
            let entry = Entry { lane: row.lane, id: row.id, message, staged, tries, doubtful: false };
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

    /// Takes the next message to publish; of those without an answer only if it is permitted.
    pub(super) fn next(&mut self, doubtful: bool) -> Option<Entry> {
        self.ready.next(doubtful)
    }

    /// Lets the next message of a key go on, because this one is published.
    pub(super) fn advance(&mut self, entry: &Entry) {
        self.delays.forget_tries(entry.id);
        self.end(entry);
    }

    /// Records that a message is not under way any more.
    fn end(&mut self, entry: &Entry) {
        let Some(key) = entry.key() else { return };
        if let Some(of_key) = self.keys.get_mut(key) {
            of_key.under_way = false;
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

    fn hold_key(&mut self, entry: &Entry) {
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

    /// Keeps the id of a message that is not under way, until its next attempt. Messages of its key wait.
    pub(super) fn delay(&mut self, entry: &Entry, now: Instant, delay: Duration) {
        let delayed = self.put_aside(entry);
        self.delays.insert(entry.id, delayed, now, delay);
    }

    fn put_aside(&mut self, entry: &Entry) -> Delayed {
        self.hold_key(entry);
        self.known.lighten(entry.id);
        Delayed { lane: entry.lane, key: entry.key().cloned() }
    }

    /// Delays a message that got no answer.
    pub(super) fn delay_unanswered(&mut self, entry: &Entry, until: Instant) {
        let delayed = self.put_aside(entry);
        self.delays.insert_unanswered(entry.id, delayed, until);
        self.end(entry);
    }

    /// Lets the key of a message go on that was given up.
    pub(super) fn give_up(&mut self, entry: &Entry) {
        self.known.remove(entry.id);
        self.delays.forget_tries(entry.id);
        self.release(entry.key(), entry.id);
    }

    /// Lets a key go on that waited for this message. Returns whether it did.
    fn release(&mut self, key: Option<&Key>, id: i64) -> bool {
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

    /// Forgets the messages whose time has come; of those without an answer as many as there are places for. Those with a
    /// key are unread. Returns the lanes and ids of the others, from which on has to be read again.
    pub(super) fn wake(&mut self, now: Instant, places: usize) -> Vec<(u8, i64)> {
        let mut woken = Vec::new();
        for (id, Delayed { lane, key }) in self.delays.wake(now, places.saturating_sub(self.ready.again())) {
            // One in front of it may have failed meanwhile: then it was or is read again with that one.
            if key.is_none() || self.release(key.as_ref(), id) {
                self.known.remove(id);
            }
            woken.extend(key.is_none().then_some((lane, id)));
        }
        woken
    }

    /// When the time of the next message comes.
    pub(super) fn next_due(&self, places: usize) -> Option<Instant> {
        self.delays.next_due(places.saturating_sub(self.ready.again()))
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
        let stays = |known: &mut Known, lane: u8, id: i64| {
            if lanes.contains(&lane) {
                known.remove(id);
            }
            !lanes.contains(&lane)
        };
        self.ready.retain(|entry| {
            let stays = stays(&mut self.known, entry.lane, entry.id);
            if !stays {
                self.delays.forget_tries(entry.id);
            }
            stays
        });
        self.delays.remove_lanes(lanes).into_iter().for_each(|id| self.known.remove(id));
        for of_key in self.keys.values_mut() {
            let before = of_key.waiting.len();
            of_key.waiting.retain(|it| stays(&mut self.known, it.lane, it.id));
            self.behind -= before - of_key.waiting.len();
        }
    }

    /// Forgets all messages of these lanes. The results of those that are being published must not get here any more.
    pub(super) fn drop_lanes(&mut self, lanes: &BTreeSet<u8>) {
        self.drop_ready(lanes);
        self.known.remove_lanes(lanes);
        self.others.retain(|lane| !lanes.contains(lane));
        self.keys.retain(|_, of_key| !lanes.contains(&of_key.lane));
    }

    /// The ids of all messages that need not be read again.
    pub(super) fn known(&self) -> Vec<i64> {
        self.known.ids()
    }

    /// The lanes of all messages here.
    pub(super) fn lanes(&self) -> BTreeSet<u8> {
        self.known.lanes()
    }

    /// How many messages are here, without those that wait for their next attempt.
    pub(super) fn len(&self) -> usize {
        self.known.len().saturating_sub(self.delayed())
    }

    /// How many of these do not wait behind another one of their key.
    pub(super) fn firsts(&self) -> usize {
        self.len().saturating_sub(self.behind)
    }

    /// The size of the payloads of all messages here.
    pub(super) fn bytes(&self) -> usize {
        self.known.bytes()
    }

    /// The lanes of messages that were woken and are not read, with the number of these messages.
    pub(super) fn woken(&self) -> &BTreeMap<u8, usize> {
        self.delays.woken()
    }

    /// How many messages wait for their next attempt.
    pub(super) fn delayed(&self) -> usize {
        self.delays.len()
    }
}

#[cfg(test)]
mod tests;
