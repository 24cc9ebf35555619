//! The messages that a relay has read, by key.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;

use crate::Key;
use crate::outbox::StagedMessage;
use crate::store::OutboxRow;

/// A message that was read.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) lane: u8,
    pub(super) id: i64,
    pub(super) message: Arc<StagedMessage>,
    /// When it was staged, by the clock of this process.
    pub(super) staged: Option<Instant>,
    /// How often the broker was away when it was published, in a row.
    pub(super) tries: u32,
}

impl Entry {
    pub(super) fn key(&self) -> Option<&Key> {
        self.message.key()
    }
}

/// The messages of one key, of which one at a time is published. It exists as long as there is one.
#[derive(Debug)]
struct OfKey {
    lane: u8,
    waiting: VecDeque<Entry>,
    /// Whether its first message waits for its next attempt. Later ones are neither kept nor read.
    blocked: bool,
}

impl OfKey {
    fn new(lane: u8) -> Self {
        Self { lane, waiting: VecDeque::new(), blocked: false }
    }
}

/// The ids of messages, with their lanes and sizes.
#[derive(Debug, Default)]
struct Known {
    ids: HashMap<i64, (u8, usize)>,
    bytes: usize,
}

impl Known {
    fn insert(&mut self, id: i64, lane: u8, size: usize) {
        self.bytes += size;
        self.ids.insert(id, (lane, size));
    }

    fn remove(&mut self, id: i64) {
        if let Some((_, size)) = self.ids.remove(&id) {
            self.bytes -= size;
        }
    }

    fn remove_lanes(&mut self, lanes: &BTreeSet<u8>) {
        let gone: Vec<i64> = self.ids.iter().filter(|(_, (lane, _))| lanes.contains(lane)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.remove(id));
    }
}

/// The messages that were read and are not deleted yet.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The ids of all of them.
    known: Known,
    /// Those of which the key is in progress or blocked.
    keys: HashMap<Key, OfKey>,
    /// Those that can be published.
    ready: VecDeque<Entry>,
    /// Those that wait for their next attempt.
    delayed: Vec<(Instant, Entry)>,
}

impl Queue {
    /// Adds what was read, in its order. Returns how many messages are new.
    pub(super) fn add(&mut self, rows: Vec<OutboxRow>, now: Instant) -> usize {
        let before = self.known.ids.len();
        for row in rows {
            if self.known.ids.contains_key(&row.id) || self.is_blocked(row.message.key()) {
                continue;
            }
            self.known.insert(row.id, row.lane, row.message.payload().len());
            let staged = now.checked_sub(row.age);
            let entry = Entry { lane: row.lane, id: row.id, message: Arc::new(row.message), staged, tries: 0 };
            match entry.key().cloned() {
                // Its first attempt was made by another relay, or before this one took the lane.
                _ if !row.due.is_zero() => self.delay(entry, now + row.due),
                None => self.ready.push_back(entry),
                Some(key) => match self.keys.get_mut(&key) {
                    Some(of_key) => of_key.waiting.push_back(entry),
                    None => {
                        self.keys.insert(key, OfKey::new(entry.lane));
                        self.ready.push_back(entry);
                    }
                },
            }
        }
        self.known.ids.len() - before
    }

    /// Takes the next message to publish.
    pub(super) fn next(&mut self) -> Option<Entry> {
        self.ready.pop_front()
    }

    /// Lets the next message of a key go on, because this one is published or given up.
    pub(super) fn advance(&mut self, entry: &Entry) {
        let Some(key) = entry.key() else { return };
        let Some(of_key) = self.keys.get_mut(key) else { return };
        of_key.blocked = false;
        match of_key.waiting.pop_front() {
            Some(next) => self.ready.push_back(next),
            None => drop(self.keys.remove(key)),
        }
    }

    /// Keeps a message until its next attempt. Messages of its key wait: those behind it are forgotten, and read again
    /// later.
    pub(super) fn delay(&mut self, entry: Entry, until: Instant) {
        self.hold(&entry);
        self.delayed.push((until, entry));
    }

    /// Keeps the key of a message that has failed, until [`delay`](Self::delay) or [`advance`](Self::advance).
    pub(super) fn hold(&mut self, entry: &Entry) {
        let Some(key) = entry.key().cloned() else { return };
        let of_key = self.keys.entry(key).or_insert_with(|| OfKey::new(entry.lane));
        of_key.blocked = true;
        for later in std::mem::take(&mut of_key.waiting) {
            self.known.remove(later.id);
        }
    }

    /// Keeps a message that is not published in its place in front of its key. It does not wait.
    pub(super) fn put_back(&mut self, entry: Entry) {
        self.ready.push_front(entry);
    }

    /// Makes the messages ready whose time has come. Returns their lanes, whose later messages have to be read again.
    pub(super) fn wake(&mut self, now: Instant) -> BTreeSet<u8> {
        let mut lanes = BTreeSet::new();
        let (due, later): (Vec<_>, Vec<_>) = self.delayed.drain(..).partition(|(until, _)| *until <= now);
        self.delayed = later;
        for (_, entry) in due {
            let Some(key) = entry.key() else {
                self.ready.push_back(entry);
                continue;
            };
            lanes.insert(entry.lane);
            match self.keys.get_mut(key) {
                Some(of_key) if of_key.blocked => {
                    of_key.blocked = false;
                    self.ready.push_back(entry);
                }
                // Another message of its key is being published.
                Some(of_key) => of_key.waiting.push_front(entry),
                None => {
                    self.keys.insert(key.clone(), OfKey::new(entry.lane));
                    self.ready.push_back(entry);
                }
            }
        }
        lanes
    }

    /// When the next message becomes ready.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.delayed.iter().map(|(until, _)| *until).min()
    }

    /// Forgets messages that are deleted.
    pub(super) fn forget(&mut self, ids: impl IntoIterator<Item = i64>) {
        for id in ids {
            self.known.remove(id);
        }
    }

    /// Drops messages that a read has found although they were deleted meanwhile.
    pub(super) fn forget_ready(&mut self, ids: &[i64]) {
        if ids.is_empty() {
            return;
        }
        let ids: HashSet<i64> = ids.iter().copied().collect();
        let (gone, ready): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.ready).into_iter().partition(|entry| ids.contains(&entry.id));
        self.ready = ready;
        for of_key in self.keys.values_mut() {
            of_key.waiting.retain(|entry| !ids.contains(&entry.id));
        }
        gone.iter().for_each(|entry| self.advance(entry));
        self.forget(ids);
    }

    /// Drops what is ready in lanes that are given back. What is being published is still settled.
    pub(super) fn drop_ready(&mut self, lanes: &BTreeSet<u8>) {
        if lanes.is_empty() {
            return;
        }
        let known = &mut self.known;
        self.ready.retain(|entry| {
            let stays = !lanes.contains(&entry.lane);
            if !stays {
                known.remove(entry.id);
            }
            stays
        });
        self.delayed.retain(|(_, entry)| !lanes.contains(&entry.lane));
        for of_key in self.keys.values_mut().filter(|of_key| lanes.contains(&of_key.lane)) {
            for later in std::mem::take(&mut of_key.waiting) {
                known.remove(later.id);
            }
        }
    }

    /// Forgets all messages of these lanes. The results of those that are being published must not get here any more.
    pub(super) fn drop_lanes(&mut self, lanes: &BTreeSet<u8>) {
        self.known.remove_lanes(lanes);
        self.ready.retain(|entry| !lanes.contains(&entry.lane));
        self.delayed.retain(|(_, entry)| !lanes.contains(&entry.lane));
        self.keys.retain(|_, of_key| !lanes.contains(&of_key.lane));
    }

    /// The ids of all messages that need not be read again.
    pub(super) fn known(&self) -> Vec<i64> {
        self.known.ids.keys().copied().collect()
    }

    /// How many messages are here, without those that wait for their next attempt.
    pub(super) fn len(&self) -> usize {
        self.known.ids.len().saturating_sub(self.delayed.len())
    }

    /// The size of the payloads of all messages here.
    pub(super) fn bytes(&self) -> usize {
        self.known.bytes
    }

    /// How many messages wait for their next attempt.
    pub(super) fn delayed(&self) -> usize {
        self.delayed.len()
    }

    /// The keys whose messages are not to be read.
    pub(super) fn blocked(&self) -> Vec<Key> {
        self.keys.iter().filter(|(_, of_key)| of_key.blocked).map(|(key, _)| key.clone()).collect()
    }

    fn is_blocked(&self, key: Option<&Key>) -> bool {
        key.and_then(|key| self.keys.get(key)).is_some_and(|of_key| of_key.blocked)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;
    use crate::Outgoing;

    fn row(id: i64, key: Option<&str>) -> OutboxRow {
        let message = Outgoing::new("a", "");
        let message = match key {
            Some(key) => message.key(key),
            None => message,
        };
        let message = StagedMessage::new(Uuid::nil(), message);
        OutboxRow { id, lane: 0, message, age: Duration::ZERO, due: Duration::ZERO }
    }

    fn ids(queue: &mut Queue) -> Vec<i64> {
        std::iter::from_fn(|| queue.next()).map(|entry| entry.id).collect()
    }

    #[tokio::test]
    async fn of_each_key_one_message_is_ready_at_a_time() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let rows = vec![row(1, Some("k")), row(2, Some("k")), row(3, None), row(4, None), row(5, Some("l"))];
        assert_eq!(queue.add(rows.clone(), now), 5);
        assert_eq!(queue.add(rows, now), 0, "all are known");
        let first = queue.next().unwrap();
        assert_eq!((first.id, ids(&mut queue)), (1, vec![3, 4, 5]));
        queue.advance(&first);
        let second = queue.next().unwrap();
        assert_eq!(second.id, 2);
        queue.advance(&second);
        assert!(queue.keys.keys().all(|key| *key == Key::of("l").unwrap()), "nothing is kept of a key that is done");
    }

    #[tokio::test]
    async fn a_delayed_message_keeps_those_behind_it() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(vec![row(1, Some("k")), row(2, Some("k")), row(3, None)], now);
        let first = queue.next().unwrap();
        queue.delay(first, now + Duration::from_secs(1));
        assert_eq!(queue.blocked(), [Key::of("k").unwrap()]);
        assert_eq!(queue.add(vec![row(2, Some("k")), row(4, Some("k"))], now), 0, "their key is blocked");
        assert_eq!(ids(&mut queue), [3]);
        assert!(queue.wake(now).is_empty());
        assert_eq!(queue.wake(now + Duration::from_secs(1)), BTreeSet::from([0]), "they are read again");
        assert_eq!(queue.add(vec![row(2, Some("k")), row(4, Some("k"))], now), 2);
        let first = queue.next().unwrap();
        assert_eq!((first.id, queue.next().is_none()), (1, true));
        queue.advance(&first);
        assert_eq!(ids(&mut queue), [2]);
    }

    #[tokio::test]
    async fn a_lane_that_is_lost_is_forgotten() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(vec![row(1, Some("k")), row(2, Some("k")), row(3, None)], now);
        queue.drop_lanes(&BTreeSet::from([0]));
        assert!(queue.next().is_none() && queue.keys.is_empty() && queue.known().is_empty());
    }
}
