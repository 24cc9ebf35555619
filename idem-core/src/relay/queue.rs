//! The messages that a relay has read, and the small queue of each key.
//!
//! At most one message of a key is under way, its head, and some are kept behind it. Of the others only the lowest id is known
//! from which on there may be some, which were *passed*. Reads from the low-water mark leave such a key out, and when half of its
//! queue is free, it is read for alone. A message that waits for its next attempt is parked: only its id is kept, and it is read
//! again by it.
//!
//! That holds for Kafka, too: its client goes on behind a message that is refused or given up, so others of the key that were sent
//! behind it would overtake it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::Key;
use crate::outbox::StagedMessage;
use crate::store::OutboxRow;

/// How many messages of one key are kept at most behind its head, and how many if all messages take half of the capacity, or
/// their bytes half of the limit.
const MANY: usize = 100;
const FEW: usize = 5;

/// The bytes of payloads and headers up to which more is read.
const BYTES: usize = 64 * 1024 * 1024;

/// How many keys one read is for at most, and how many messages it brings.
const KEYS: usize = 100;
const READ: usize = 2000;

/// A longer delay than this is divided: a message that is read before its time is delayed again.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// A message that is not deleted yet.
#[derive(Debug)]
pub(super) struct Row {
    /// `None`: it is parked.
    pub(super) message: Option<Arc<StagedMessage>>,
    pub(super) key: Option<Key>,
    /// When it was staged, by the clock of this process.
    pub(super) staged: Option<Instant>,
    /// How often it was published without an answer, in a row.
    pub(super) tries: u32,
}

/// The messages of one key. It exists as long as there may be one.
#[derive(Debug, Default)]
struct OfKey {
    /// The one that is ready, under way or parked.
    head: Option<i64>,
    is_parked: bool,
    /// Those behind it that are kept.
    waiting: BTreeSet<i64>,
    /// The lowest id of those that are not kept, if there may be some, beside those of the read that runs.
    passed: Option<i64>,
    /// That from before this read began.
    asked: Option<i64>,
    /// Whether it is among those that are read for next.
    is_queued: bool,
}

impl OfKey {
    /// Records that messages from this id on are not kept. Nor are those of a read that runs.
    fn pass(&mut self, id: i64) {
        self.passed = Some(self.passed.map_or(id, |passed| passed.min(id)));
    }
}

/// The messages that were read and are not deleted yet.
#[derive(Debug, Default)]
pub(super) struct Queue {
    rows: HashMap<i64, Row>,
    keys: HashMap<Key, OfKey>,
    /// The keys that are read for next.
    reading_on: VecDeque<Key>,
    /// The messages that can be published; those of which an earlier attempt got no answer, or whose destination does not answer.
    ready: VecDeque<i64>,
    slow: VecDeque<i64>,
    /// Those that wait for their time: refused ones, and those that got no answer.
    refused: BTreeSet<(Instant, i64)>,
    unanswered: BTreeSet<(Instant, i64)>,
    /// Those whose time has come, to be read again by their ids.
    due: BTreeSet<i64>,
    /// How many messages are parked.
    parked: usize,
    bytes: usize,
    capacity: usize,
}

impl Queue {
    /// Returns the queue of a relay that keeps so many messages.
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// Adds a message that was read. Returns it if it is to be published next, of its key or because it has none.
    pub(super) fn add(&mut self, row: OutboxRow, now: Instant) -> Option<i64> {
        let id = row.id;
        let key = row.message.key().cloned();
        if let Some(known) = self.rows.get_mut(&id) {
            if known.message.is_some() {
                return None;
            }
            // It is read again by its id.
            self.parked -= 1;
            self.bytes += row.message.message().size();
            known.message = Some(Arc::new(row.message));
            if let Some(of_key) = known.key.as_ref().and_then(|key| self.keys.get_mut(key)) {
                of_key.is_parked = false;
            }
            return Some(id);
        }
        if let Some(key) = &key {
            let most = self.most();
            let of_key = self.keys.entry(key.clone()).or_default();
            if of_key.passed.is_some_and(|passed| passed <= id) {
                return None;
            }
            if of_key.is_parked || of_key.head.is_some() && of_key.waiting.len() >= most {
                of_key.pass(id);
                return None;
            }
        }
        self.bytes += row.message.message().size();
        let (staged, message) = (now.checked_sub(row.age), Some(Arc::new(row.message)));
        self.rows.insert(id, Row { message, key: key.clone(), staged, tries: 0 });
        let Some(key) = key else { return Some(id) };
        let of_key = self.keys.entry(key.clone()).or_default();
        of_key.waiting.insert(id);
        self.next_of(&key)
    }

    /// Returns how many messages of a key may be kept behind its head.
    fn most(&self) -> usize {
        if self.bytes > BYTES / 2 || self.kept() > self.capacity / 2 { FEW } else { MANY }
    }

    /// Makes the first message of a key its head, if it has none, and returns it. Forgets a key without messages.
    fn next_of(&mut self, key: &Key) -> Option<i64> {
        let of_key = self.keys.get_mut(key)?;
        if of_key.head.is_some() {
            return None;
        }
        of_key.head = of_key.waiting.pop_first();
        if of_key.head.is_none() && of_key.passed.is_none() && of_key.asked.is_none() {
            self.keys.remove(key);
            return None;
        }
        let head = of_key.head;
        self.read_on(key);
        head
    }

    /// Lets a key be read for if messages were passed, and half of its queue is free.
    fn read_on(&mut self, key: &Key) {
        let half = self.most() / 2;
        if let Some(of_key) = self.keys.get_mut(key)
            && of_key.passed.is_some()
            && !of_key.is_parked
            && !of_key.is_queued
            && of_key.waiting.len() <= half
        {
            of_key.is_queued = true;
            self.reading_on.push_back(key.clone());
        }
    }

    /// Makes a message ready.
    pub(super) fn ready(&mut self, id: i64, is_slow: bool) {
        let is_slow = is_slow || self.rows.get(&id).is_some_and(|row| row.tries > 0);
        if is_slow { self.slow.push_back(id) } else { self.ready.push_back(id) }
    }

    /// Takes a message that is ready, and says whether it is a slow one. `has_slot`: there is a slot for such ones.
    pub(super) fn next(&mut self, has_slot: bool) -> Option<(i64, bool)> {
        let slow = if has_slot { self.slow.pop_front() } else { None };
        slow.map(|id| (id, true)).or_else(|| Some((self.ready.pop_front()?, false)))
    }

    pub(super) fn get(&self, id: i64) -> Option<&Row> {
        self.rows.get(&id)
    }

    /// Lets the next message of a key go on, because this one is published or given up. Returns the next one.
    pub(super) fn advance(&mut self, id: i64) -> Option<i64> {
        let row = self.rows.get_mut(&id)?;
        row.tries = 0;
        let key = row.key.clone()?;
        let of_key = self.keys.get_mut(&key).filter(|of_key| of_key.head == Some(id))?;
        (of_key.head, of_key.is_parked) = (None, false);
        self.next_of(&key)
    }

    /// Keeps only the id of a message that waits for its next attempt. Those behind it are forgotten, and read again later.
    pub(super) fn park(&mut self, id: i64) {
        let Some(row) = self.rows.get_mut(&id) else { return };
        if let Some(message) = row.message.take() {
            self.bytes -= message.message().size();
            self.parked += 1;
        }
        let Some(key) = row.key.clone() else { return };
        let Some(of_key) = self.keys.get_mut(&key) else { return };
        of_key.is_parked = true;
        let waiting = std::mem::take(&mut of_key.waiting);
        if let Some(first) = waiting.first() {
            of_key.pass(*first);
        }
        waiting.into_iter().for_each(|id| self.remove(id));
    }

    /// Parks a message that was refused until its next attempt.
    pub(super) fn park_refused(&mut self, id: i64, now: Instant, delay: Duration) {
        self.park(id);
        self.refused.insert((now + delay.min(LONGEST), id));
    }

    /// Counts an attempt, if it got no answer in time. Returns how many of these there were in a row.
    pub(super) fn count_try(&mut self, id: i64, is_late: bool) -> u32 {
        let Some(row) = self.rows.get_mut(&id) else { return 0 };
        row.tries = if is_late { row.tries.saturating_add(1) } else { 0 };
        row.tries
    }

    /// Parks a message that got no answer until its next attempt.
    pub(super) fn park_unanswered(&mut self, id: i64, until: Instant) {
        self.park(id);
        self.unanswered.insert((until, id));
    }

    /// Lets parked messages be read again now.
    pub(super) fn wake(&mut self, ids: impl IntoIterator<Item = i64>) {
        self.due.extend(ids);
    }

    /// Wakes those whose time has come; of those without an answer as many as there are slots for.
    pub(super) fn wake_due(&mut self, now: Instant, slots: usize) {
        while self.refused.first().is_some_and(|(until, _)| *until <= now) {
            let first = self.refused.pop_first();
            self.due.extend(first.map(|(_, id)| id));
        }
        while self.slow.len() + self.due.len() < slots
            && self.unanswered.first().is_some_and(|(until, _)| *until <= now)
        {
            let first = self.unanswered.pop_first();
            self.due.extend(first.map(|(_, id)| id));
        }
    }

    /// Takes messages that are to be read again, up to so many.
    pub(super) fn take_due(&mut self, most: usize) -> Vec<i64> {
        let ids: Vec<i64> = self.due.iter().take(most).copied().collect();
        self.due.retain(|id| ids.last().is_some_and(|last| last < id));
        ids
    }

    /// Forgets a message that is deleted or gone. Returns the next one of its key.
    pub(super) fn forget(&mut self, id: i64) -> Option<i64> {
        let next = self.advance(id);
        self.remove(id);
        next
    }

    /// Forgets a message that is not the head of its key, because it is deleted, or has none.
    pub(super) fn remove(&mut self, id: i64) {
        match self.rows.remove(&id) {
            Some(Row { message: Some(message), .. }) => self.bytes -= message.message().size(),
            Some(_) => self.parked -= 1,
            None => {}
        }
    }

    /// Takes the keys that the next read is for: the one that has waited for the longest time, and others of which nothing is in
    /// front of it. Returns also from where on, and how many messages they have room for. `start` says where a read begins.
    pub(super) fn take_keys(&mut self, start: impl Fn(i64) -> i64) -> Option<(Vec<Key>, i64, usize)> {
        let (mut keys, mut others, mut from, mut capacity) = (Vec::new(), VecDeque::new(), i64::MIN, 0);
        let most = self.most();
        for key in std::mem::take(&mut self.reading_on) {
            let Some(of_key) = self.keys.get_mut(&key) else { continue };
            let Some(passed) = of_key.passed.filter(|_| !of_key.is_parked) else {
                of_key.is_queued = false;
                continue;
            };
            if keys.len() >= KEYS || capacity >= READ || start(passed) < from {
                others.push_back(key);
                continue;
            }
            if keys.is_empty() {
                from = start(passed);
            }
            (of_key.asked, of_key.is_queued) = (of_key.passed.take(), false);
            capacity += most.saturating_sub(of_key.waiting.len()).max(1);
            keys.push(key);
        }
        self.reading_on = others;
        (!keys.is_empty()).then_some((keys, from, capacity.min(READ)))
    }

    /// How many keys are to be read for.
    pub(super) fn keys_to_read(&self) -> usize {
        self.reading_on.len()
    }

    /// Records that a read for keys has ended, before its messages are added. `rest`: from where on there may be more.
    pub(super) fn covered(&mut self, keys: &[Key], rest: Option<i64>) {
        for key in keys {
            let Some(of_key) = self.keys.get_mut(key) else { continue };
            let asked = of_key.asked.take();
            if let Some(rest) = rest {
                // The backlog of another key may be in front of its messages, and is not searched for them again.
                of_key.pass(asked.unwrap_or(rest).max(rest));
            }
        }
    }

    /// Lets keys be read for again, or forgets them, behind such a read.
    pub(super) fn settle(&mut self, keys: &[Key]) -> Vec<i64> {
        let next = keys.iter().filter_map(|key| self.next_of(key)).collect();
        keys.iter().for_each(|key| self.read_on(key));
        next
    }

    /// The keys that a read from the low-water mark leaves out.
    pub(super) fn left_out(&self) -> Vec<Key> {
        self.keys.iter().filter(|(_, of_key)| of_key.passed.is_some()).map(|(key, _)| key.clone()).collect()
    }

    /// Records that a read from this id on has left out these keys: a message that was committed late may be there.
    pub(super) fn left_out_from(&mut self, keys: &[Key], from: i64) {
        for key in keys {
            if let Some(of_key) = self.keys.get_mut(key) {
                of_key.pass(from);
                self.read_on(key);
            }
        }
    }

    /// The ids between these that a read need not bring.
    pub(super) fn known(&self, from: i64, to: i64) -> Vec<i64> {
        self.rows.keys().copied().filter(|id| (from..=to).contains(id)).collect()
    }

    /// How many messages can be published now.
    pub(super) fn ready_len(&self) -> usize {
        self.ready.len()
    }

    /// How many messages are kept that are not parked.
    fn kept(&self) -> usize {
        self.rows.len() - self.parked
    }

    /// Returns whether the messages that are kept have all bytes that they may have.
    pub(super) fn is_heavy(&self) -> bool {
        self.bytes >= BYTES
    }

    /// Returns whether there is no room for more messages. `parked`: how many may be parked.
    pub(super) fn is_full(&self, parked: usize) -> bool {
        self.kept() >= self.capacity || self.is_heavy() || self.parked >= parked
    }
}

#[cfg(test)]
mod tests;
