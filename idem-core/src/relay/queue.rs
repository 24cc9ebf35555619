//! The messages that a relay has read, by key.

use std::collections::btree_map::OccupiedEntry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::Key;
use crate::outbox::StagedMessage;
use crate::store::{OutboxRow, RowRef};

use super::known::Known;

/// A longer delay than this is divided.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// A message that was read.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) lane: u8,
    pub(super) id: i64,
    pub(super) message: Arc<StagedMessage>,
    /// When it was staged, by the clock of this process.
    pub(super) staged: Option<Instant>,
    /// How often it was published without an answer, in a row.
    pub(super) tries: u32,
}

impl Entry {
    pub(super) fn key(&self) -> Option<&Key> {
        self.message.key()
    }

    pub(super) fn row(&self) -> RowRef {
        RowRef { lane: self.lane, id: self.id, message_id: self.message.id() }
    }
}

/// The messages of one key. One at a time is published, and the one with the lowest id is the next. It exists as long as
/// there is one.
#[derive(Debug)]
struct OfKey {
    lane: u8,
    /// Those behind the one that is under way, by id.
    waiting: VecDeque<Entry>,
    /// Whether one is ready or being published.
    under_way: bool,
    /// The one that waits for its next attempt. Those behind it are neither kept nor read.
    held: Option<i64>,
}

/// A message that waits for its next attempt, and is read again then.
#[derive(Debug)]
struct Delayed {
    lane: u8,
    key: Option<Key>,
}

/// The messages that were read and are not deleted yet.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// All of them.
    known: Known,
    /// Those with a key.
    keys: HashMap<Key, OfKey>,
    /// Those that can be published.
    ready: VecDeque<Entry>,
    /// Those of which an earlier attempt got no answer.
    again: VecDeque<Entry>,
    /// Those that wait for their next attempt, by its time and their id. Nothing else is kept of them.
    delayed: BTreeMap<(Instant, i64), Delayed>,
    /// The same of those that got no answer. They are read again only when there is a place for them: otherwise they would
    /// take the room of all others.
    unanswered: BTreeMap<(Instant, i64), Delayed>,
    /// How many of them were woken since the last read.
    woken: usize,
    /// How often messages were published without an answer, in a row.
    tries: HashMap<i64, u32>,
}

impl Queue {
    /// Adds what was read, in its order. Returns how many messages are new.
    pub(super) fn add(&mut self, rows: Vec<OutboxRow>, now: Instant) -> usize {
        let before = self.known.len();
        self.woken = 0;
        for row in rows {
            let key = row.message.key().cloned();
            let held = key.as_ref().and_then(|key| self.keys.get(key)?.held);
            if self.known.contains(row.id) || held.is_some_and(|held| held < row.id) {
                continue;
            }
            self.known.insert(row.id, row.lane, row.message.payload().len());
            let tries = self.tries.get(&row.id).copied().unwrap_or(0);
            let staged = now.checked_sub(row.age);
            let entry = Entry { lane: row.lane, id: row.id, message: Arc::new(row.message), staged, tries };
            match key {
                // Its first attempt was made by another relay, or before this one took the lane.
                _ if !row.due.is_zero() => self.delay(&entry, now, row.due),
                None => self.ready(entry),
                Some(key) => {
                    let of_key = self.keys.entry(key.clone()).or_insert_with(|| OfKey::new(entry.lane));
                    let place = of_key.waiting.partition_point(|other| other.id < entry.id);
                    of_key.waiting.insert(place, entry);
                    self.start_next(&key);
                }
            }
        }
        self.known.len() - before
    }

    fn ready(&mut self, entry: Entry) {
        if entry.tries > 0 { self.again.push_back(entry) } else { self.ready.push_back(entry) }
    }

    /// Makes the next message of a key ready, if none is under way, and forgets a key of which there is none.
    fn start_next(&mut self, key: &Key) {
        let Some(of_key) = self.keys.get_mut(key) else { return };
        if of_key.under_way {
            return;
        }
        match of_key.waiting.pop_front() {
            Some(next) => {
                of_key.under_way = true;
                self.ready(next);
            }
            None if of_key.held.is_none() => drop(self.keys.remove(key)),
            None => {}
        }
    }

    /// Takes the next message to publish; of those without an answer only if it is permitted.
    pub(super) fn next(&mut self, again: bool) -> Option<Entry> {
        let first = if again { self.again.pop_front() } else { None };
        first.or_else(|| self.ready.pop_front())
    }

    /// Lets the next message of a key go on, because this one is published.
    pub(super) fn advance(&mut self, entry: &Entry) {
        self.tries.remove(&entry.id);
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
        self.tries.remove(&entry.id);
        self.hold_key(entry);
        self.end(entry);
    }

    fn hold_key(&mut self, entry: &Entry) {
        let Some(key) = entry.key().cloned() else { return };
        let of_key = self.keys.entry(key).or_insert_with(|| OfKey::new(entry.lane));
        let behind = of_key.waiting.partition_point(|other| other.id < entry.id);
        for later in of_key.waiting.split_off(behind) {
            self.known.remove(later.id);
        }
        match of_key.held.replace(entry.id) {
            // It is in front of this one.
            Some(held) if held < entry.id => of_key.held = Some(held),
            // It is behind this one.
            Some(held) if held > entry.id => {
                self.known.remove(held);
                self.delayed.retain(|(_, id), _| *id != held);
                self.unanswered.retain(|(_, id), _| *id != held);
            }
            _ => {}
        }
    }

    /// Keeps the id of a message that is not under way, until its next attempt. Messages of its key wait.
    pub(super) fn delay(&mut self, entry: &Entry, now: Instant, delay: Duration) {
        let delayed = self.put_aside(entry);
        // What is read before its time is delayed again.
        let until = now + delay.min(LONGEST);
        self.delayed.insert((until, entry.id), delayed);
    }

    fn put_aside(&mut self, entry: &Entry) -> Delayed {
        self.hold_key(entry);
        self.known.lighten(entry.id);
        Delayed { lane: entry.lane, key: entry.key().cloned() }
    }

    /// Delays a message that got no answer.
    pub(super) fn delay_unanswered(&mut self, entry: &Entry, until: Instant) {
        self.tries.insert(entry.id, entry.tries.saturating_add(1));
        let delayed = self.put_aside(entry);
        self.unanswered.insert((until, entry.id), delayed);
        self.end(entry);
    }

    /// Lets the key of a message go on that was given up.
    pub(super) fn give_up(&mut self, entry: &Entry) {
        self.known.remove(entry.id);
        self.tries.remove(&entry.id);
        self.release(entry.key(), entry.id);
    }

    fn release(&mut self, key: Option<&Key>, id: i64) {
        let Some(key) = key else { return };
        if let Some(of_key) = self.keys.get_mut(key).filter(|of_key| of_key.held == Some(id)) {
            of_key.held = None;
            self.start_next(key);
        }
    }

    /// Keeps a message that is not published in its place in front of its key. It does not wait.
    pub(super) fn put_back(&mut self, entry: Entry) {
        if entry.tries > 0 { self.again.push_front(entry) } else { self.ready.push_front(entry) }
    }

    /// Forgets a message that is not published, because another relay is to publish it.
    pub(super) fn leave(&mut self, entry: &Entry) {
        self.forget([entry.id]);
        self.end(entry);
    }

    /// Forgets the messages whose time has come; of those without an answer as many as there are places for. Returns their
    /// lanes and ids, from which on has to be read again.
    pub(super) fn wake(&mut self, now: Instant, places: usize) -> Vec<(u8, i64)> {
        let is_due = |first: &OccupiedEntry<'_, (Instant, i64), Delayed>| first.key().0 <= now;
        let mut woken = Vec::new();
        while let Some(first) = self.delayed.first_entry().filter(is_due) {
            woken.push(first.remove_entry());
        }
        while self.has_room(places)
            && let Some(first) = self.unanswered.first_entry().filter(is_due)
        {
            woken.push(first.remove_entry());
            self.woken += 1;
        }
        for ((_, id), Delayed { key, .. }) in &woken {
            self.known.remove(*id);
            self.release(key.as_ref(), *id);
        }
        woken.into_iter().map(|((_, id), Delayed { lane, .. })| (lane, id)).collect()
    }

    fn has_room(&self, places: usize) -> bool {
        self.again.len() + self.woken < places
    }

    /// When the time of the next message comes.
    pub(super) fn next_due(&self, places: usize) -> Option<Instant> {
        let unanswered = self.unanswered.first_key_value().filter(|_| self.has_room(places));
        let firsts = self.delayed.first_key_value().into_iter().chain(unanswered);
        firsts.map(|((until, _), _)| *until).min()
    }

    /// Forgets messages that are deleted.
    pub(super) fn forget(&mut self, ids: impl IntoIterator<Item = i64>) {
        for id in ids {
            self.known.remove(id);
            self.tries.remove(&id);
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
        self.ready.retain(|entry| stays(&mut self.known, entry.lane, entry.id));
        self.again.retain(|entry| stays(&mut self.known, entry.lane, entry.id));
        for delayed in [&mut self.delayed, &mut self.unanswered] {
            delayed.retain(|(_, id), delayed| stays(&mut self.known, delayed.lane, *id));
        }
        self.keys.values_mut().for_each(|of_key| of_key.waiting.retain(|it| stays(&mut self.known, it.lane, it.id)));
    }

    /// Forgets all messages of these lanes. The results of those that are being published must not get here any more.
    pub(super) fn drop_lanes(&mut self, lanes: &BTreeSet<u8>) {
        self.drop_ready(lanes);
        self.known.remove_lanes(lanes);
        self.keys.retain(|_, of_key| !lanes.contains(&of_key.lane));
        self.tries.retain(|id, _| self.known.contains(*id));
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

    /// The size of the payloads of all messages here.
    pub(super) fn bytes(&self) -> usize {
        self.known.bytes()
    }

    /// How many messages wait for their next attempt.
    pub(super) fn delayed(&self) -> usize {
        self.delayed.len() + self.unanswered.len()
    }

    /// The keys whose messages are not to be read, and their lanes.
    pub(super) fn blocked(&self) -> (Vec<Key>, BTreeSet<u8>) {
        let blocked = self.keys.iter().filter(|(_, of_key)| of_key.held.is_some());
        blocked.map(|(key, of_key)| (key.clone(), of_key.lane)).unzip()
    }
}

impl OfKey {
    fn new(lane: u8) -> Self {
        Self { lane, waiting: VecDeque::new(), under_way: false, held: None }
    }
}

#[cfg(test)]
mod tests {
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
        std::iter::from_fn(|| queue.next(true)).map(|entry| entry.id).collect()
    }

    #[tokio::test]
    async fn of_each_key_one_message_is_ready_at_a_time() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let rows = vec![row(1, Some("k")), row(2, Some("k")), row(3, None), row(4, None), row(5, Some("l"))];
        assert_eq!(queue.add(rows.clone(), now), 5);
        assert_eq!(queue.add(rows, now), 0, "all are known");
        let first = queue.next(true).unwrap();
        assert_eq!((first.id, ids(&mut queue)), (1, vec![3, 4, 5]));
        queue.advance(&first);
        let second = queue.next(true).unwrap();
        assert_eq!(second.id, 2);
        queue.advance(&second);
        assert!(queue.keys.keys().all(|key| *key == Key::of("l").unwrap()), "nothing is kept of a key that is done");
    }

    #[tokio::test]
    async fn a_delayed_message_keeps_those_behind_it() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(vec![row(1, Some("k")), row(2, Some("k")), row(3, None)], now);
        let first = queue.next(true).unwrap();
        queue.hold(&first);
        queue.delay(&first, now, Duration::from_secs(1));
        assert_eq!(queue.blocked(), (vec![Key::of("k").unwrap()], BTreeSet::from([0])));
        assert_eq!(queue.add(vec![row(2, Some("k")), row(4, Some("k"))], now), 0, "their key is blocked");
        assert_eq!(ids(&mut queue), [3]);
        assert!(queue.wake(now, 1).is_empty());
        assert_eq!(queue.wake(now + Duration::from_secs(1), 1), [(0, 1)], "it and those behind it are read again");
        assert_eq!(queue.add(vec![row(1, Some("k")), row(2, Some("k")), row(4, Some("k"))], now), 3);
        let first = queue.next(true).unwrap();
        assert_eq!((first.id, queue.next(true).is_none()), (1, true));
        queue.advance(&first);
        assert_eq!(ids(&mut queue), [2]);
    }

    #[tokio::test]
    async fn a_message_in_its_delay_is_not_overtaken_when_one_in_front_of_it_is_published() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let delayed = OutboxRow { due: Duration::from_secs(1), ..row(2, Some("k")) };
        queue.add(vec![row(1, Some("k")), delayed, row(3, Some("k"))], now);
        let first = queue.next(true).unwrap();
        assert_eq!(first.id, 1);
        queue.advance(&first);
        queue.add(vec![row(3, Some("k"))], now);
        assert!(queue.next(true).is_none(), "3 overtakes 2");
    }

    #[tokio::test]
    async fn a_message_that_comes_late_goes_in_front_of_one_in_its_delay() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(vec![row(2, Some("k")), row(3, Some("k"))], now);
        let second = queue.next(true).unwrap();
        queue.delay_unanswered(&second, now + Duration::from_secs(1));
        queue.add(vec![row(1, Some("k"))], now);
        let first = queue.next(true).unwrap();
        assert_eq!(first.id, 1);
        queue.delay_unanswered(&first, now + Duration::from_secs(2));
        assert!(queue.wake(now + Duration::from_secs(1), 1).is_empty(), "2 is behind 1");
        assert_eq!(queue.wake(now + Duration::from_secs(2), 1), [(0, 1)]);
        assert_eq!(queue.add(vec![row(1, Some("k")), row(2, Some("k"))], now), 2);
        assert_eq!(ids(&mut queue), [1]);
    }

    #[tokio::test]
    async fn of_a_delayed_message_only_the_id_is_kept() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let large = |id| {
            let message = StagedMessage::new(Uuid::nil(), Outgoing::new("a", vec![0; 1000]));
            OutboxRow { message, ..row(id, None) }
        };
        queue.add(vec![large(1), large(2)], now);
        let first = queue.next(true).unwrap();
        queue.delay(&first, now, Duration::from_secs(1));
        assert_eq!((queue.bytes(), queue.len(), queue.delayed()), (1000, 1, 1));
        assert_eq!(queue.add(vec![large(1)], now), 0, "it is not read again before its time");
    }

    #[tokio::test]
    async fn a_message_without_an_answer_stands_behind_others() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(vec![row(1, None)], now);
        let first = queue.next(true).unwrap();
        queue.delay_unanswered(&first, now);
        assert!(queue.wake(now, 0).is_empty() && queue.next_due(0).is_none(), "there is no place for it");
        assert_eq!(queue.wake(now, 1), [(0, 1)]);
        queue.add(vec![row(1, None), row(2, None)], now);
        assert_eq!((queue.next(false).unwrap().id, queue.next(false).is_none()), (2, true));
        assert_eq!(queue.next(true).unwrap().tries, 1);
    }

    #[tokio::test]
    async fn a_lane_that_is_lost_is_forgotten() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(vec![row(1, Some("k")), row(2, Some("k")), row(3, None)], now);
        queue.drop_lanes(&BTreeSet::from([0]));
        assert!(queue.next(true).is_none() && queue.keys.is_empty() && queue.known().is_empty());
    }
}
