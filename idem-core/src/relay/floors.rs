//! From where lanes are read.
//!
//! To read all that is left of a lane cannot skip a message, however late its transaction commits. But under a long
//! transaction such a read visits the index entries of all messages that were deleted since, each time. So lanes are
//! read from a level: a mark, which is the number of a transaction, and an id for each lane, up to which all was read
//! by the first read after the mark was drawn. Transactions with higher numbers draw higher ids. So a row below those
//! ids appears only when a transaction below the mark ends that was open. Each read says which are open. If one of
//! them has ended, what the read has found is dropped, and the next one begins at a level below that transaction, so
//! that no message behind its rows is published first.
//!
//! A level holds for all keys but those of which messages are unread, which have a start of their own
//! ([`Unread`](super::unread::Unread)).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::store::{LaneLook, OutboxFound};

use super::level::{Covered, Ids, Last, Level, Reading, last};

/// How old a level is before reads begin there: shorter transactions cost nothing then.
const SETTLED: Duration = Duration::from_secs(2);

/// The time between two levels.
const BETWEEN: Duration = Duration::from_millis(500);

/// Both are divided by this while reads are costly: at thousands of messages a second, and under a long transaction, what was
/// deleted since an old level is many times what is left. But if a transaction then ends, it costs a read; so the next two
/// seconds are as usual.
const SOONER: u32 = 10;

/// A read is costly if it takes longer than both: this, and this for each row that it brings.
const COSTLY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_micros(10));

/// How often each lane is read from its start, whatever the levels say.
const WHOLE: Duration = Duration::from_secs(30);

/// A read that takes longer does not ask for more lanes the next time.
const SLOW: Duration = Duration::from_secs(1);

/// From where lanes are read.
#[derive(Debug)]
pub(super) struct Floors {
    /// From the oldest. The first one is the start of each lane.
    levels: Vec<Level>,
    /// The transactions that were open at the last read.
    open: BTreeSet<i64>,
    /// The oldest transaction that has ended since, of which rows may be missing.
    ended: Option<i64>,
    /// The highest id that was read, or that there was. Lanes draw their ids from one sequence, so it holds for those of
    /// which nothing was read.
    highest: i64,
    /// Lanes that are read from a lower id once.
    once: Ids,
    asked: Asked,
    /// The last read was costly.
    is_costly: bool,
    /// Until then, levels settle as usual.
    patient_until: Option<Instant>,
    /// A read has failed, and no mark has come since.
    is_unsure: bool,
    /// How many lanes one read may ask for, and the one that is the first.
    width: usize,
    first: u8,
    /// When the next lane is read from its start, and which one.
    whole: (Instant, u8),
}

/// The request of the read that runs.
#[derive(Debug, Default)]
struct Asked {
    mark: i64,
    /// The level's id of each lane.
    read: Ids,
    once: Ids,
    /// The lanes that are read for keys of which messages are unread.
    behind: BTreeSet<u8>,
    /// The most rows of each lane.
    limits: BTreeMap<u8, u32>,
}

impl Floors {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            levels: vec![Level { is_settled: true, ..Level::default() }],
            open: BTreeSet::new(),
            ended: None,
            highest: 0,
            once: Ids::new(),
            asked: Asked::default(),
            is_costly: false,
            patient_until: None,
            is_unsure: false,
            width: usize::MAX,
            first: 0,
            whole: (now + WHOLE, 0),
        }
    }

    /// Lets one of these lanes be read from its start, if it is time.
    pub(super) fn read_whole(&mut self, lanes: &[u8], now: Instant) {
        let next = lanes.iter().copied().find(|lane| *lane >= self.whole.1).or(lanes.first().copied());
        if now >= self.whole.0
            && let Some(lane) = next
        {
            self.whole = (now + WHOLE / u32::try_from(lanes.len()).unwrap_or(1), lane.saturating_add(1));
            self.reopen(lane, 0);
        }
    }

    /// Returns where the next read begins in these lanes, and how many messages it brings at most: in those of `behind`
    /// no more than are asked for there, and from there on. It may not ask for all lanes.
    pub(super) fn look(&mut self, lanes: &[u8], limit: u32, behind: &BTreeMap<u8, LaneLook>) -> Vec<LaneLook> {
        let first = lanes.iter().position(|lane| *lane >= self.first).unwrap_or(0);
        let some = lanes.iter().cycle().skip(first).take(self.width.min(lanes.len()));
        let ended = self.ended.unwrap_or(i64::MAX);
        let level = self.levels.iter().rfind(|level| level.is_settled && level.mark <= ended);
        let read = some.map(|lane| (*lane, level.map_or(0, |level| level.read(*lane)))).collect::<Ids>();
        let once: Ids = read.keys().filter_map(|lane| Some((*lane, self.once.remove(lane)?))).collect();
        let look = |(lane, read): (&u8, &i64)| {
            let floor = once.get(lane).copied().unwrap_or(i64::MAX).min(read.saturating_add(1));
            let behind = behind.get(lane).copied().unwrap_or(LaneLook { lane: *lane, floor, limit });
            LaneLook { lane: *lane, floor: floor.min(behind.floor), limit: limit.min(behind.limit) }
        };
        let looks: Vec<LaneLook> = read.iter().map(look).collect();
        let limits = looks.iter().map(|look| (look.lane, look.limit)).collect();
        let behind = read.keys().copied().filter(|lane| behind.contains_key(lane)).collect();
        self.asked = Asked { mark: level.map_or(0, |level| level.mark), read, once, behind, limits };
        looks
    }

    /// Returns whether the next read has to bring a mark.
    pub(super) fn wants_mark(&self, now: Instant) -> bool {
        self.is_unsure || self.ended.is_none() && self.wants_level(now, &self.asked.read)
    }

    fn wants_level(&self, now: Instant, read: &Ids) -> bool {
        let Some(last) = self.levels.last() else { return false };
        // A lane that was not read since the last mark rises with its next read, as high as that level can be.
        let rises = |lane: &u8| last.highest == self.highest && last.unread.contains(lane);
        let is_low = |lane: &u8| last.read(*lane) < self.highest && !rises(lane);
        last.at.is_none_or(|at| now >= at + self.sooner(BETWEEN, now)) && read.keys().any(is_low)
    }

    fn sooner(&self, time: Duration, now: Instant) -> Duration {
        let is_patient = self.patient_until.is_some_and(|until| now < until);
        if self.is_costly && !is_patient { time / SOONER } else { time }
    }

    /// Lets reads begin only at levels that were two seconds old at `began`, until two seconds from now.
    fn be_patient(&mut self, began: Instant, now: Instant) {
        self.patient_until = Some(now + SETTLED);
        self.levels.iter_mut().filter(|level| !level.is_old(began, SETTLED)).for_each(|level| level.is_settled = false);
    }

    /// Reads this lane from this id, once.
    pub(super) fn reopen(&mut self, lane: u8, id: i64) {
        self.once.entry(lane).and_modify(|from| *from = id.min(*from)).or_insert(id);
    }

    /// Reads this lane from its start, as if it had never been read.
    pub(super) fn forget(&mut self, lane: u8) {
        for level in &mut self.levels {
            level.read.remove(&lane);
        }
        self.reopen(lane, 0);
    }

    /// Records that a read has failed that began at `began`. It may have been too slow, so the next one asks for fewer lanes.
    /// Or the server has failed over to one that lags behind: ids below young levels may come back. The next mark shows it.
    pub(super) fn failed(&mut self, began: Instant, now: Instant) {
        self.be_patient(began, now);
        self.is_unsure = true;
        let Asked { read, once, .. } = std::mem::take(&mut self.asked);
        self.width = (read.len() / 2).max(1);
        self.turn(&read);
        for (lane, id) in once {
            self.reopen(lane, id);
        }
    }

    /// Records what a read has found, which began at `began`, and takes out of it what must not be published: all, if the
    /// next read has to begin lower; and the rows of the lanes in `dropped`, which are read again. Returns the part of each
    /// other lane that it has covered, and `None` if the next read has to begin lower.
    pub(super) fn found(
        &mut self,
        found: &mut OutboxFound,
        began: Instant,
        dropped: &BTreeSet<u8>,
    ) -> Option<BTreeMap<u8, Covered>> {
        let Asked { mark, read, once, behind, limits } = std::mem::take(&mut self.asked);
        if found.mark.is_some_and(|mark| 0 < mark && self.levels.last().is_some_and(|last| mark <= last.mark)) {
            // After a failover numbers and ids come back, if their transactions were lost: rows may appear anywhere.
            *self = Self { width: self.width, first: self.first, ..Self::new(began) };
            found.rows.clear();
            return None;
        }
        self.is_unsure &= found.mark.is_none();
        let rows = u32::try_from(found.rows.len()).unwrap_or(u32::MAX);
        self.is_costly = began.elapsed() > COSTLY.0.max(COSTLY.1.saturating_mul(rows));
        let open: BTreeSet<i64> = found.open.iter().copied().collect();
        let ended = self.open.difference(&open).copied().find(|ended| *ended < mark);
        let left = self.open.difference(&open).next().copied();
        for (lane, id) in &once {
            if ended.is_some() || dropped.contains(lane) {
                self.reopen(*lane, *id);
            }
        }
        if ended.is_some() {
            self.ended = ended.min(self.ended).or(ended);
            self.be_patient(began, began);
            found.rows.clear();
            return None;
        }
        (self.open, self.ended) = (open, None);
        found.rows.retain(|row| !dropped.contains(&row.lane));
        self.widen(began, &read);
        self.highest = found.rows.iter().map(|row| row.id).fold(self.highest.max(found.highest), i64::max);
        let last = last(found, read.keys().copied().filter(|lane| !dropped.contains(lane)), &limits);
        let from = |lane: &u8| read.get(lane).copied().unwrap_or(0).saturating_add(1);
        let covered = last.iter().map(|(lane, to)| (*lane, Covered { from: from(lane), to: *to })).collect();
        self.raise(began, Asked { mark, read, once, behind, limits }, last, (left, found.mark));
        Some(covered)
    }

    /// Applies a read to the levels, and adds one if it is time. `left` is the oldest transaction that has ended since the
    /// read before.
    fn raise(&mut self, began: Instant, asked: Asked, mut last: Last, (left, drawn): (Option<i64>, Option<i64>)) {
        let Asked { mark, mut read, once, behind, .. } = asked;
        // Such a read says nothing of what is behind the last row, and the levels there stay as they are: it was for keys
        // of which messages are unread, which have their own start, or for a part of the lane that was read before.
        let below = |lane: &u8, end: i64| read.get(lane).is_some_and(|read| end < *read);
        let says_nothing = |lane: &u8, end: i64| behind.contains(lane) || once.contains_key(lane) && below(lane, end);
        let part = last.iter().filter_map(|(lane, end)| Some((*lane, (*end)?)));
        let part: Vec<(u8, i64)> = part.filter(|(lane, end)| says_nothing(lane, *end)).collect();
        for (lane, end) in part {
            read.remove(&lane);
            last.remove(&lane);
            if once.contains_key(&lane) {
                self.reopen(lane, end.saturating_add(1));
            }
        }
        let base = self.levels.iter().rfind(|level| level.is_settled && level.mark <= mark);
        let base = base.map(|level| level.read.clone()).unwrap_or_default();
        let reading = Reading { asked: &read, base: &base, last: &last, ended: left };
        self.levels.iter_mut().for_each(|level| level.apply(&reading));
        if let Some(mark) = drawn.filter(|_| self.wants_level(began, &read)) {
            // Not what this read has covered: below the mark there may be transactions that its snapshot does not list,
            // because they began after the last one that had ended. One may have drawn a lower id, and end before the next
            // read. So a lane rises with the first read of it that follows.
            let (highest, unread) = (self.highest, (0..=u8::MAX).collect());
            let read = self.levels.last().map(|last| last.read.clone()).unwrap_or_default();
            self.levels.push(Level { at: Some(began), mark, highest, read, unread, is_settled: false });
        }
        self.settle(began);
    }

    /// Lets reads begin at the levels that are old enough, and forgets those that no open transaction needs.
    fn settle(&mut self, began: Instant) {
        let newest = |age| self.levels.iter().rposition(|level| level.is_old(began, age)).unwrap_or(0);
        let (top, patient) = (newest(self.sooner(SETTLED, began)), newest(SETTLED));
        self.levels.iter_mut().take(top + 1).for_each(|level| level.is_settled = true);
        let below = |open: &i64| self.levels.partition_point(|level| level.mark <= *open).saturating_sub(1);
        let needed: BTreeSet<usize> = self.open.iter().map(below).collect();
        // A read that is dropped or fails goes back to a level of that age, so the others on the way to it are kept, too.
        let (mut place, mut next) = (0.., None);
        self.levels.retain(|level| {
            let Some(place) = place.next() else { return false };
            let is_step = place >= patient && level.at.zip(next).is_none_or(|(at, next)| at >= next);
            if is_step {
                next = level.at.map(|at| at + BETWEEN);
            }
            is_step || place == 0 || place >= top || needed.contains(&place)
        });
    }

    /// Lets the next read ask for more lanes, if this one was quick.
    fn widen(&mut self, began: Instant, read: &Ids) {
        if self.width < usize::MAX {
            self.turn(read);
            if began.elapsed() < SLOW {
                self.width = if self.width < usize::from(u8::MAX) { 2 * self.width } else { usize::MAX };
            }
        }
    }

    /// The next read begins with the lanes that this one has left out.
    fn turn(&mut self, read: &Ids) {
        self.first = read.keys().next_back().map_or(0, |lane| lane.saturating_add(1));
    }
}

#[cfg(test)]
mod tests;
