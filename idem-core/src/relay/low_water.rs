//! The low-water mark: the id from which reads begin.
//!
//! To read all that is left cannot skip a message, however late its transaction commits. But under a long transaction such a
//! read visits the index entries of all messages that were deleted since, each time. So reads begin behind the low-water mark:
//!
//! 1. A mark is drawn by a statement of its own: a number, as transactions have them, and the highest id that was drawn before.
//!    Staging draws its number before its ids, so each message up to that id is one of a transaction below that number.
//! 2. A later read from the low-water mark raises it, to that id or to where the read was cut: if the upper bound of its
//!    snapshot is above the number, and no transaction below the number is open in it. (A snapshot lists no transaction that has begun after the
//!    last one that has ended, so one below the number might be open otherwise, and not be listed.)
//! 3. A transaction that stays open for a second is remembered with the low-water mark from before, above which its messages
//!    are. A read that shows its end is dropped, and the low-water mark falls back there: its messages come before all that follow
//!    them. The next read that covers what was reached before raises it again, since all other transactions below that mark had ended.
//! 4. A statement that fails sets the low-water mark to 0, since the server may have failed over to one that lags behind.
//! 5. A second cursor walks the ids below the low-water mark, for what was written there by hand.
//!
//! `tests/model/src/low_water` searches all orders of steps of these rules.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::store::{OutboxFound, OutboxMark, OutboxSnapshot};

/// How long a transaction may be open before it is remembered: shorter ones cost no read.
const PATIENCE: Duration = Duration::from_secs(1);

/// The time between two marks, and that between two while nothing is staged: then they only show that ids have gone back.
const MARKS: Duration = Duration::from_millis(100);
const IDLE: Duration = Duration::from_secs(10);

/// How many ids a read covers at first, and behind a failure: it may have been too slow. A quick read doubles it.
const RANGE: i64 = 100_000;
const QUICK: Duration = Duration::from_millis(100);
const SLOW: Duration = Duration::from_secs(1);

/// The ids that a read covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) from: i64,
    pub(super) to: i64,
}

/// The verdict on the messages that a read has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep,
    /// They are read again, behind those of a transaction that has ended.
    Drop,
    /// The database or the table is another one: nothing that is known holds any more.
    Replaced,
}

/// From where the outbox is read.
#[derive(Debug, Default)]
pub(super) struct LowWater {
    low_water: i64,
    /// The mark to which the low-water mark rises next.
    mark: Option<Mark>,
    /// The highest low-water mark that was reached, and the number of its mark.
    reached: (i64, i64),
    /// The number of the last mark, and when it was drawn.
    number: i64,
    marked: Option<Instant>,
    /// The open transactions below the low-water mark, with the low-water mark from before.
    remembered: BTreeMap<i64, i64>,
    /// The highest id that was read, and the highest one that the last mark has named.
    seen: i64,
    highest: i64,
    range: i64,
    table: Option<i64>,
    /// Where the second cursor is.
    cursor: i64,
}

/// A mark up to which no read has come yet.
#[derive(Debug, Clone, Copy)]
struct Mark {
    highest: i64,
    number: i64,
    at: Instant,
}

impl LowWater {
    pub(super) fn new() -> Self {
        Self { range: RANGE, ..Self::default() }
    }

    /// Returns the ids that the next read from the low-water mark covers.
    pub(super) fn bounds(&self) -> Bounds {
        self.bounds_from(self.low_water + 1)
    }

    /// Returns the ids that a read covers which begins here.
    pub(super) fn bounds_from(&self, from: i64) -> Bounds {
        let to = from.saturating_add(self.range - 1);
        let is_bounded = self.marked.is_none() || to < self.highest;
        Bounds { from, to: if is_bounded { to } else { i64::MAX } }
    }

    /// Returns where a read begins for a key or a destination of which messages from this id on were left out: no higher than
    /// others do, since one that commits late may be in front of them.
    pub(super) fn start(&self, passed: i64) -> i64 {
        passed.min(self.low_water + 1)
    }

    /// Returns the ids that the second cursor covers next; `None` if it has come to the low-water mark, and begins anew.
    pub(super) fn walk(&mut self) -> Option<Bounds> {
        let bounds = Bounds { from: self.cursor + 1, to: self.low_water.min(self.cursor.saturating_add(RANGE)) };
        self.cursor = if bounds.from > bounds.to { 0 } else { bounds.to };
        (bounds.from <= bounds.to).then_some(bounds)
    }

    /// Records that the second cursor has come no further than to this id: its read was cut there, or dropped.
    pub(super) fn walked(&mut self, end: i64) {
        self.cursor = self.cursor.min(end);
    }

    /// Returns whether the next read has to draw a mark.
    pub(super) fn wants_mark(&self, now: Instant) -> bool {
        let since = if self.seen > self.low_water { MARKS } else { IDLE };
        self.mark.is_none() && self.marked.is_none_or(|marked| now >= marked + since)
    }

    /// Records that a statement has failed.
    pub(super) fn failed(&mut self) {
        *self = Self { number: self.number, table: self.table, ..Self::new() };
    }

    /// Adapts how many ids the next reads cover to the time that one of such a range took.
    pub(super) fn adapt(&mut self, time: Duration) {
        self.range = match time {
            time if time < QUICK => self.range.saturating_mul(2).min(i64::MAX / 4),
            time if time > SLOW => (self.range / 2).max(RANGE),
            _ => self.range,
        };
    }

    /// Records the end of a read. `bounds`: it was one from the low-water mark.
    pub(super) fn ended(&mut self, bounds: Option<Bounds>, found: &OutboxFound, now: Instant) -> Verdict {
        // A failure since has lowered the low-water mark: this read says nothing of what is below its own.
        let bounds = bounds.filter(|bounds| bounds.from <= self.low_water + 1);
        let last = found.rows.last().map(|row| row.id);
        let end = bounds.map(|bounds| if found.is_cut { last.unwrap_or(self.low_water) } else { bounds.to });
        let Some(snapshot) = &found.snapshot else {
            let highest = found.mark.map_or(0, |mark| mark.highest).max(last.unwrap_or(0));
            self.low_water = self.low_water.max(end.unwrap_or(0).min(highest));
            (self.marked, self.highest) = (Some(now), highest);
            return Verdict::Keep;
        };
        if self.is_replaced(snapshot, found.mark) {
            return Verdict::Replaced;
        }
        let is_open = |number: &i64| *number >= snapshot.end || snapshot.open.contains(number);
        let ended =
            self.remembered.iter().filter(|(number, _)| !is_open(number)).map(|(_, low_water)| *low_water).min();
        if let Some(low_water) = ended {
            self.remembered.retain(|number, _| is_open(number));
            self.low_water = self.low_water.min(low_water);
            self.draw(found.mark, now);
            let (highest, number) = self.reached;
            self.mark = Some(Mark { highest, number, at: now });
            return Verdict::Drop;
        }
        self.seen = self.seen.max(last.unwrap_or(0));
        if let Some((end, mark)) = end.zip(self.mark).filter(|(_, mark)| snapshot.end > mark.number) {
            self.raise(end, mark, snapshot, now);
        }
        self.draw(found.mark, now);
        Verdict::Keep
    }

    /// Raises the low-water mark to where a read has ended, or to the mark, unless a transaction below the mark is open.
    fn raise(&mut self, end: i64, mark: Mark, snapshot: &OutboxSnapshot, now: Instant) {
        let is_below = |number: &&i64| **number < mark.number && !self.remembered.contains_key(*number);
        let open: Vec<i64> = snapshot.open.iter().filter(is_below).copied().collect();
        if !open.is_empty() && now < mark.at + PATIENCE {
            return;
        }
        self.remembered.extend(open.into_iter().map(|number| (number, self.low_water)));
        self.low_water = self.low_water.max(end.min(mark.highest));
        self.reached = self.reached.max((self.low_water, mark.number));
        self.mark = self.mark.filter(|_| end < mark.highest);
    }

    /// Records a mark that was drawn behind a read.
    fn draw(&mut self, mark: Option<OutboxMark>, now: Instant) {
        let Some(OutboxMark { number, highest }) = mark else { return };
        // A role that may not read the sequence knows only what was read.
        let highest = if highest > 0 { highest } else { self.seen };
        (self.number, self.highest, self.marked) = (number, highest, Some(now));
        if highest > self.low_water {
            self.mark.get_or_insert(Mark { highest, number, at: now });
        }
    }

    /// Returns whether the table is another one, or numbers or ids have gone back: behind a failover or a restore.
    fn is_replaced(&mut self, snapshot: &OutboxSnapshot, mark: Option<OutboxMark>) -> bool {
        let is_another = self.table.replace(snapshot.table).is_some_and(|table| table != snapshot.table);
        let has_gone_back = |mark: OutboxMark| {
            mark.number <= self.number || mark.highest > 0 && mark.highest < self.low_water.max(self.seen)
        };
        is_another || mark.is_some_and(has_gone_back)
    }
}

#[cfg(test)]
mod tests;
