//! The reads of a relay: which one is next, and what becomes of the messages that it brings.
//!
//! One read runs at a time. Those for messages whose time has come, for keys, for destinations, and from the low-water mark take
//! turns, so that none can hinder another. While many keys are to be read for, reads from the low-water mark are rare, since each
//! may add more keys.

use std::time::Duration;

use tokio::time::Instant;

use crate::Store;
use crate::outbox::Sink;
use crate::runtime::jittered;
use crate::store::{OutboxFilter, OutboxFound, OutboxRead, StoreError};

use super::circuit::KEPT;
use super::low_water::{Bounds, Verdict};
use super::tenure::{End, Tenure};

/// The kinds of reads that take turns: of parked messages whose time has come, by their ids; of passed messages of keys; of
/// messages without a key that were left out for their destination; of all others, from the low-water mark on; and of those below
/// it.
const DUE: usize = 0;
const OF_KEYS: usize = 1;
const TO_DESTINATION: usize = 2;
const FROM_LOW_WATER: usize = 3;
const BELOW_LOW_WATER: usize = 4;
const KINDS: usize = 5;

/// The most messages that one read brings, and their bytes of payloads and headers: a slow connection has to carry them within the
/// time limit of a statement.
const MOST: usize = 2000;
const BYTES: u64 = 8 * 1024 * 1024;

/// How many messages may be parked before nothing new is read: so many for each that may be published at a time, at least so many,
/// and at most so many, since reads from the low-water mark name each key of which more messages wait.
const PARKED: usize = 100;
const PARKED_AT_LEAST: usize = 1000;
const PARKED_AT_MOST: usize = 50_000;

/// If so many keys are to be read for, so many reads come between two from the low-water mark.
const KEYS: usize = 1000;
const BEFORE_LOW_WATER: usize = 15;

/// The shortest time between the beginnings of two reads from the low-water mark.
const BETWEEN: Duration = Duration::from_millis(2);

/// How often the second cursor reads.
pub(super) const WALK: Duration = Duration::from_secs(1);

impl<S: Store, K: Sink> Tenure<'_, S, K> {
    /// Returns the read that is next, if there is one now.
    pub(super) fn next_read(&mut self, now: Instant) -> Option<OutboxRead> {
        self.next.again.filter(|again| *again <= now)?;
        let is_behind = self.queue.keys_to_read() >= KEYS && self.since_low_water < BEFORE_LOW_WATER;
        for _ in 0..KINDS {
            self.turn = (self.turn + 1) % KINDS;
            let read = match self.turn {
                DUE => self.read_due(),
                OF_KEYS => self.read_keys(),
                TO_DESTINATION => self.read_destination(now),
                FROM_LOW_WATER if is_behind => None,
                FROM_LOW_WATER => self.read_low_water(now),
                _ => self.read_below(now),
            };
            if read.is_some() {
                self.since_low_water =
                    if self.turn == FROM_LOW_WATER { 0 } else { self.since_low_water.saturating_add(1) };
                return read;
            }
        }
        None
    }

    /// Returns whether there are enough messages.
    pub(super) fn is_full(&self) -> bool {
        let concurrency = self.relay.settings.concurrency;
        self.queue.ready_len() >= 2 * concurrency
            || self.queue.is_full(concurrency.saturating_mul(PARKED).clamp(PARKED_AT_LEAST, PARKED_AT_MOST))
    }

    fn limit(&self) -> usize {
        self.relay.settings.concurrency.saturating_mul(4).clamp(16, MOST)
    }

    fn read_due(&mut self) -> Option<OutboxRead> {
        if self.queue.ready_len() >= 2 * self.relay.settings.concurrency || self.queue.is_heavy() {
            return None;
        }
        let ids = self.queue.take_due(self.limit());
        let limit = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        (limit > 0).then_some(OutboxRead { filter: OutboxFilter::Ids(ids), limit, bytes: BYTES, ..OutboxRead::ALL })
    }

    fn read_keys(&mut self) -> Option<OutboxRead> {
        if self.is_full() {
            return None;
        }
        let low_water = &self.low_water;
        let (keys, from, limit) = self.queue.take_keys(|passed| low_water.start(passed))?;
        Some(self.ask(OutboxFilter::Keys(keys), self.low_water.bounds_from(from), limit))
    }

    fn read_destination(&mut self, now: Instant) -> Option<OutboxRead> {
        let (to, passed) = self.circuits.begin_read(now, self.is_full())?;
        let limit = if self.circuits.is_open(&to) { KEPT } else { self.limit() };
        Some(self.ask(OutboxFilter::Destination(to), self.low_water.bounds_from(self.low_water.start(passed)), limit))
    }

    fn read_low_water(&mut self, now: Instant) -> Option<OutboxRead> {
        if now < self.next.read || self.is_full() {
            return None;
        }
        (self.next.read, self.next.early) = (now + jittered(self.relay.settings.poll), now + BETWEEN);
        let marks = self.low_water.wants_mark(now);
        Some(OutboxRead { marks, ..self.ask(self.others(), self.low_water.bounds(), self.limit()) })
    }

    fn read_below(&mut self, now: Instant) -> Option<OutboxRead> {
        if now < self.next.walk || self.is_full() {
            return None;
        }
        self.next.walk = now + WALK;
        let bounds = self.low_water.walk()?;
        Some(self.ask(self.others(), bounds, self.limit()))
    }

    fn others(&self) -> OutboxFilter {
        OutboxFilter::Except { keys: self.queue.left_out(), destinations: self.circuits.left_out() }
    }

    fn ask(&self, filter: OutboxFilter, Bounds { from, to }: Bounds, limit: usize) -> OutboxRead {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        OutboxRead { from, to, filter, known: self.queue.known(from, to), limit, bytes: BYTES, marks: false }
    }

    /// Records the end of a read, and adds the messages that it has brought.
    pub(super) fn read_ended(&mut self, read: OutboxRead, began: Instant, found: Result<OutboxFound, StoreError>) {
        let now = Instant::now();
        let OutboxRead { from, to, filter, .. } = read;
        let from_low_water = (self.turn == FROM_LOW_WATER).then_some(Bounds { from, to });
        let Some(found) = self.answered_by_database("read the outbox", found) else {
            self.next.read = self.again();
            self.next.again = Some(self.next.read);
            return self.undo(filter, from);
        };
        self.next.again = Some(now);
        let before = self.low_water.bounds();
        // Those by ids and below the low-water mark do not cover such a range.
        if !matches!(self.turn, DUE | BELOW_LOW_WATER) {
            self.low_water.adapt(now.duration_since(began));
        }
        match self.low_water.ended(from_low_water, &found, now) {
            Verdict::Keep => {}
            // Those that are read by their ids are in front of all that comes later.
            Verdict::Drop if self.turn == DUE => self.read_soon(),
            Verdict::Drop => {
                self.read_soon();
                return self.undo(filter, from);
            }
            Verdict::Replaced => {
                tracing::warn!("the database of the outbox was restored, or has failed over: the relay begins anew");
                self.end.get_or_insert(End::Replaced);
                return;
            }
        }
        let is_bounded = to < i64::MAX;
        let last = found.rows.last().map(|row| row.id).filter(|_| found.is_cut);
        let rest = last.or(is_bounded.then_some(to)).map(|end| end + 1);
        match &filter {
            OutboxFilter::Ids(ids) => self.gone(ids, &found),
            OutboxFilter::Keys(keys) => self.queue.covered(keys, rest),
            OutboxFilter::Destination(to) => self.circuits.end_read(to, true, rest),
            OutboxFilter::Except { .. } if self.turn == BELOW_LOW_WATER => {
                last.into_iter().for_each(|last| self.low_water.walked(last));
            }
            OutboxFilter::Except { keys, destinations } => {
                self.queue.left_out_from(keys, from);
                self.circuits.left_out_from(destinations, from);
                if !found.rows.is_empty() || is_bounded && self.low_water.bounds() != before {
                    // There may be more.
                    self.read_soon();
                }
            }
        }
        for row in found.rows {
            let (id, due) = (row.id, row.due);
            let next = self.queue.add(row, now);
            if next == Some(id) && !due.is_zero() {
                // Its first attempt was made by another relay.
                self.queue.park_refused(id, now, due);
            } else {
                self.enqueue(next);
            }
        }
        if let OutboxFilter::Keys(keys) = &filter {
            let next = self.queue.settle(keys);
            self.enqueue(next);
        }
    }

    /// Forgets messages that were asked for by their ids, and are not there any more.
    fn gone(&mut self, ids: &[i64], found: &OutboxFound) {
        let is_there = |id: &i64| found.rows.binary_search_by_key(id, |row| row.id).is_ok();
        let is_after = |id: &i64| found.is_cut && found.rows.last().is_some_and(|last| last.id < *id);
        for id in ids.iter().filter(|id| !is_there(id)) {
            if is_after(id) {
                self.queue.wake([*id]);
                continue;
            }
            self.circuits.gone(*id);
            let next = self.queue.forget(*id);
            self.enqueue(next);
        }
    }

    /// Takes back a read that has brought nothing that counts.
    fn undo(&mut self, filter: OutboxFilter, from: i64) {
        match filter {
            OutboxFilter::Ids(ids) => self.queue.wake(ids),
            OutboxFilter::Keys(keys) => {
                self.queue.covered(&keys, Some(from));
                let next = self.queue.settle(&keys);
                self.enqueue(next);
            }
            OutboxFilter::Destination(to) => self.circuits.end_read(&to, false, Some(from)),
            OutboxFilter::Except { .. } if self.turn == BELOW_LOW_WATER => self.low_water.walked(from - 1),
            OutboxFilter::Except { .. } => {}
        }
    }

    /// Reads from the low-water mark as soon as it may be.
    pub(super) fn read_soon(&mut self) {
        self.next.read = self.next.read.min(self.next.early);
    }
}
