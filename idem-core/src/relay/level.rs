//! A level from which lanes are read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::store::OutboxFound;

/// An id for each lane.
pub(super) type Ids = BTreeMap<u8, i64>;

/// The last id that was found in each lane that was read; `None` if all that is left of it was found.
pub(super) type Last = BTreeMap<u8, Option<i64>>;

/// The part of a lane that a read has covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Covered {
    /// It has begun here, or lower.
    pub(super) from: i64,
    /// The last id that it has found; `None` if it has found all that is left behind `from`.
    pub(super) to: Option<i64>,
}

/// Up to which id each lane was read since a mark was drawn.
#[derive(Debug, Default)]
pub(super) struct Level {
    pub(super) at: Option<Instant>,
    pub(super) mark: i64,
    /// The highest id that was read by then, of any lane. Transactions above the mark have higher ones.
    pub(super) highest: i64,
    /// Up to which id all was read.
    pub(super) read: Ids,
    /// The lanes that were not read since the mark was drawn, or since a transaction below the mark has ended.
    pub(super) unread: BTreeSet<u8>,
    pub(super) is_settled: bool,
}

/// The result of a read.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    /// The lanes that it was asked for.
    pub(super) asked: &'a Ids,
    /// The ids of the level from which it began.
    pub(super) base: &'a Ids,
    pub(super) last: &'a Last,
    /// The oldest transaction that has ended since the read before.
    pub(super) ended: Option<i64>,
}

impl Level {
    /// Returns whether it is so old. The start of all lanes always is.
    pub(super) fn is_old(&self, now: Instant, age: Duration) -> bool {
        self.at.is_none_or(|at| now >= at + age)
    }

    pub(super) fn read(&self, lane: u8) -> i64 {
        self.read.get(&lane).copied().unwrap_or(0)
    }

    /// Lowers the ids above which something may be unread. Lanes that a read was not asked for stay as they are, unless a
    /// transaction below the mark has ended: it may have left rows there. A lane that is read for the first time since the
    /// mark was drawn, or since such an end, rises to what was the highest id when the mark was drawn.
    pub(super) fn apply(&mut self, reading: &Reading<'_>) {
        let Reading { asked, base, last, ended } = *reading;
        let is_whole = ended.is_none_or(|ended| ended >= self.mark);
        for (lane, id) in &mut self.read {
            if asked.contains_key(lane) || !is_whole {
                *id = known(*lane, *id, base, last);
                if !last.contains_key(lane) {
                    // A later read that covers it finds all that was left there, and it rises again.
                    self.unread.insert(*lane);
                }
            }
        }
        for (lane, last) in last {
            if self.unread.remove(lane) {
                self.read.insert(*lane, last.map_or(self.highest, |last| last.min(self.highest)));
            }
        }
    }
}

/// Returns the last id of each of these lanes. `limits` has how many rows of each were asked for.
pub(super) fn last(found: &OutboxFound, lanes: impl Iterator<Item = u8>, limits: &BTreeMap<u8, u32>) -> Last {
    let mut last: Last = lanes.map(|lane| (lane, None)).collect();
    for rows in found.rows.chunk_by(|row, next| row.lane == next.lane) {
        let is_part = |lane: u8| {
            limits.get(&lane).is_some_and(|limit| rows.len() >= *limit as usize) || found.cut.contains(&lane)
        };
        if let Some(end) = rows.last().filter(|end| is_part(end.lane)) {
            last.insert(end.lane, Some(end.id));
        }
    }
    last
}

/// Up to which id a lane is known after a read, if it would be known up to `id` without what the read has found.
pub(super) fn known(lane: u8, id: i64, base: &Ids, last: &Last) -> i64 {
    match last.get(&lane) {
        // There may be more behind it.
        Some(Some(last)) => id.min(*last),
        Some(None) => id,
        // It was not read.
        None => id.min(base.get(&lane).copied().unwrap_or(0)),
    }
}
