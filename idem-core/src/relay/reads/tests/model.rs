//! A model of transactions, and of a relay that reads what they have staged.

use std::collections::HashSet;
use std::sync::Arc;

use super::super::super::entry::{Entry, Place};
use super::super::super::floors::Floors;
use super::*;
use crate::store::OutboxFound;

const LANES: u8 = 2;

/// The first one stands for no key. The others alternate between the lanes.
pub(super) const KEYS: [&str; 6] = ["", "a", "b", "c", "d", "e"];

/// A destination that may hang.
const DOWN: &str = "down";

/// A row, or the dead index entry of one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    key: usize,
    /// The numbers at which it got its id, and at which its transaction was committed.
    drawn: i64,
    committed: Option<i64>,
    /// Published, or given up.
    pub(super) is_done: bool,
    is_deleted: bool,
}

impl Row {
    fn lane(self) -> u8 {
        u8::try_from(self.key).unwrap() % LANES
    }

    fn found(self, id: i64) -> OutboxRow {
        let message = Outgoing::new(if id % 3 == 0 { DOWN } else { "a" }, "");
        let message = if self.key == 0 { message } else { message.key(KEYS[self.key]) };
        let message = StagedMessage::new(Uuid::nil(), message);
        OutboxRow { id, lane: self.lane(), message, age: Duration::ZERO, due: Duration::ZERO }
    }
}

pub(super) struct Model {
    seed: u64,
    next_number: i64,
    pub(super) next_id: i64,
    pub(super) rows: BTreeMap<i64, Row>,
    /// The ids that the open transactions have drawn.
    pub(super) open: BTreeMap<i64, Vec<i64>>,
    /// The highest transaction that has ended. A snapshot lists none above it.
    ended: i64,
    pub(super) queue: Queue,
    pub(super) floors: Floors,
    start: Instant,
    pub(super) now: Instant,
    /// The messages that are being published, those that were refused, and those that are confirmed.
    pub(super) publishing: Vec<Entry>,
    pub(super) refused: Vec<Entry>,
    confirmed: Vec<Entry>,
    /// What the running read has found, with its beginning; and the rows that were deleted since.
    pub(super) read: Option<(Instant, OutboxFound)>,
    deleted: HashSet<i64>,
    /// Whether reads bring only what was woken, if there is some, as if too many messages waited for their next attempt.
    pub(super) is_few: bool,
    /// Whether ids are in the order of commits, as those of SQLite are.
    pub(super) is_in_order: bool,
    /// Whether a destination hangs, and there is a place to try it.
    pub(super) is_down: bool,
    pub(super) is_tried: bool,
    /// From where on the last read was.
    pub(super) looks: Vec<LaneLook>,
    /// How many index entries all reads have visited, and lanes they have read for keys.
    pub(super) visited: usize,
    pub(super) for_keys: usize,
    /// How many messages were set aside because their destination hung, and how often it answered again.
    pub(super) set_aside: usize,
    pub(super) answered: usize,
}

impl Model {
    /// If it is slow, reads that have failed stay narrow.
    pub(super) fn new(seed: u64, slow: bool) -> Self {
        let now = Instant::now();
        let start = if slow { now.checked_sub(Duration::from_secs(100)).unwrap() } else { now };
        Self {
            seed,
            next_number: 1,
            next_id: 1,
            rows: BTreeMap::new(),
            open: BTreeMap::new(),
            ended: 0,
            queue: Queue::default(),
            floors: Floors::new(start),
            start,
            now: start,
            publishing: Vec::new(),
            refused: Vec::new(),
            confirmed: Vec::new(),
            read: None,
            deleted: HashSet::new(),
            is_few: false,
            is_in_order: false,
            is_down: false,
            is_tried: true,
            looks: Vec::new(),
            visited: 0,
            for_keys: 0,
            set_aside: 0,
            answered: 0,
        }
    }

    pub(super) fn at(&mut self, at: f64) {
        self.now = self.start + Duration::from_secs_f64(at);
    }

    pub(super) fn random(&mut self, below: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.seed >> 33).unwrap() % below
    }

    pub(super) fn number(&mut self) -> i64 {
        self.next_number += 1;
        self.next_number
    }

    /// Stages messages of a key in a transaction, which stays open.
    pub(super) fn stage(&mut self, transaction: i64, key: usize, messages: usize) {
        for _ in 0..messages {
            let (id, drawn) = (self.next_id, self.number());
            self.next_id += 1;
            self.rows.insert(id, Row { key, drawn, committed: None, is_done: false, is_deleted: false });
            self.open.entry(transaction).or_default().push(id);
        }
    }

    pub(super) fn commit(&mut self, transaction: i64) {
        let committed = Some(self.number());
        self.ended = self.ended.max(transaction);
        for id in self.open.remove(&transaction).unwrap_or_default() {
            self.rows.entry(id).and_modify(|row| row.committed = committed);
        }
    }

    /// Begins a read, in its snapshot.
    pub(super) fn begin(&mut self, limit: u32, is_paused: bool) {
        let mut lanes: Vec<u8> = (0..LANES).collect();
        let woken = if self.is_few { self.queue.woken().clone() } else { BTreeMap::new() };
        let (few, is_paused) = (!woken.is_empty(), is_paused && woken.is_empty());
        lanes.retain(|lane| !few || woken.contains_key(lane));
        let limit = woken.values().max().map_or(limit, |most| u32::try_from(*most).unwrap());
        let asks = self.queue.ask(few, is_paused);
        if is_paused {
            lanes.retain(|lane| !asks.lanes.contains(lane) || asks.behind.contains_key(lane));
        }
        if lanes.is_empty() {
            return;
        }
        self.for_keys += asks.behind.len();
        self.looks = self.floors.look(&lanes, limit, &asks.behind);
        let known: HashSet<i64> = self.queue.known(&self.looks).into_iter().collect();
        let is_left_out = |key: usize| key > 0 && asks.keys.contains(&Key::of(KEYS[key]).unwrap());
        let left_out: Vec<bool> = (0..KEYS.len()).map(is_left_out).collect();
        let highest = if self.is_in_order { self.next_id - 1 } else { 0 };
        let open = self.open.keys().copied().filter(|transaction| *transaction <= self.ended).collect();
        let mut found = OutboxFound { open, highest, ..OutboxFound::default() };
        for look in &self.looks {
            let mut left = look.limit;
            let of_lane = |row: &Row| row.lane() == look.lane && row.committed.is_some();
            for (id, row) in self.rows.range(look.floor..).filter(|(_, row)| of_lane(row)) {
                if left == 0 {
                    break;
                }
                self.visited += 1;
                if !row.is_deleted && !left_out[row.key] && !known.contains(id) {
                    found.rows.push(row.found(*id));
                    left -= 1;
                }
            }
        }
        self.read = Some((self.now, found));
    }

    /// Ends the read that runs. Rarely, it has failed, or a lane was lost and taken again meanwhile.
    pub(super) fn end(&mut self, is_sure: bool) {
        let Some((began, mut found)) = self.read.take() else { return };
        let deleted = std::mem::take(&mut self.deleted);
        found.mark = self.floors.wants_mark(began).then(|| self.number());
        self.ended = self.ended.max(found.mark.unwrap_or(0));
        let chance = if is_sure { 2 } else { self.random(20) };
        if chance == 0 {
            return self.floors.failed(began, began);
        }
        let lost = (chance == 1).then(|| self.random(LANES.into()) as u8).into_iter().collect();
        self.lose(&lost);
        let Some(covered) = self.floors.found(&mut found, began, &lost) else { return };
        found.rows.retain(|row| !deleted.contains(&row.id));
        self.queue.covered(&covered);
        self.queue.add(found.rows, self.now);
    }

    fn lose(&mut self, lost: &BTreeSet<u8>) {
        lost.iter().for_each(|lane| self.floors.forget(*lane));
        self.queue.drop_lanes(lost);
        let calls = self.publishing.iter().filter(|entry| lost.contains(&entry.lane));
        calls.for_each(|entry| self.queue.destinations.ended(entry, self.now));
        for entries in [&mut self.publishing, &mut self.refused, &mut self.confirmed] {
            entries.retain(|entry| !lost.contains(&entry.lane));
        }
    }

    /// Begins to publish all that can be published. None may overtake one of its key that was committed before it was staged.
    pub(super) fn publish(&mut self) {
        let is_tried = self.is_tried;
        while let Some(entry) = self.queue.next_to_publish(self.now, |place| place != Place::Aside || is_tried) {
            let row = self.rows[&entry.id];
            assert!(!row.is_deleted, "{} is published again", entry.id);
            let is_overtaken = |other: &Row| {
                let is_earlier = other.committed.is_some_and(|committed| committed < row.drawn);
                row.key > 0 && other.key == row.key && is_earlier && !other.is_done
            };
            let overtaken = self.rows.range(..entry.id).find(|(_, other)| is_overtaken(other));
            assert!(row.is_done || overtaken.is_none(), "{} overtakes {overtaken:?}", entry.id);
            self.publishing.push(entry);
        }
    }

    /// Messages of the destination that hangs have got no answer before.
    pub(super) fn hang(&mut self) {
        let message = Arc::new(StagedMessage::new(Uuid::nil(), Outgoing::new(DOWN, "")));
        let entry = Entry { lane: 0, id: 0, message, staged: None, tries: 0, place: Place::Any };
        for _ in 0..100 {
            self.queue.destinations.late(&entry, self.now, self.now);
        }
    }

    /// Returns whether the destination of a message hangs.
    pub(super) fn hangs(&self, entry: &Entry) -> bool {
        self.is_down && entry.message.to() == DOWN
    }

    /// The broker does not answer.
    pub(super) fn late(&mut self, entry: Entry) {
        self.queue.destinations.late(&entry, self.now, self.now);
        self.queue.destinations.ended(&entry, self.now);
        if self.queue.sets_aside(&entry) {
            self.set_aside += 1;
            return self.queue.set_aside(Entry { tries: entry.tries + 1, ..entry }, self.now);
        }
        let until = self.now + Duration::from_millis(self.random(1000) as u64);
        self.queue.delay_unanswered(&entry, until);
    }

    /// The broker refuses a message.
    pub(super) fn refuse(&mut self, entry: Entry) {
        self.queue.destinations.ended(&entry, self.now);
        self.queue.hold(&entry);
        self.refused.push(entry);
    }

    pub(super) fn confirm(&mut self, entry: Entry) {
        self.answered += usize::from(self.queue.confirmed(&entry, self.now));
        self.queue.destinations.ended(&entry, self.now);
        self.rows.entry(entry.id).and_modify(|row| row.is_done = true);
        self.queue.advance(&entry);
        self.confirmed.push(entry);
    }

    /// Deletes what is confirmed.
    pub(super) fn delete_confirmed(&mut self) {
        std::mem::take(&mut self.confirmed).iter().for_each(|entry| self.delete(entry.id));
    }

    /// Records what was refused: it is published again later, or given up.
    pub(super) fn record_refused(&mut self) {
        for entry in std::mem::take(&mut self.refused) {
            let delay = Duration::from_millis(self.random(1000) as u64);
            if self.random(2) == 0 {
                self.queue.delay(&entry, self.now, delay);
                continue;
            }
            self.delete(entry.id);
            self.queue.give_up(&entry);
        }
    }

    fn delete(&mut self, id: i64) {
        self.rows.entry(id).and_modify(|row| (row.is_done, row.is_deleted) = (true, true));
        if self.read.is_some() {
            self.deleted.insert(id);
        }
        self.queue.forget([id]);
    }

    pub(super) fn wake(&mut self) {
        let woken = self.queue.wake(self.now, 10);
        woken.into_iter().for_each(|(lane, id)| self.floors.reopen(lane, id));
    }
}
