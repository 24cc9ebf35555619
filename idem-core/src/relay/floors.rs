//! From where lanes are read.
//!
//! To read all that is left of a lane cannot skip a message, however late its transaction commits. But under a long
//! transaction such a read visits the index entries of all messages that were deleted since, each time. So lanes are read
//! from a level: a mark, which is the number of a transaction, and an id for each lane, up to which all was read before
//! the mark was drawn. Transactions with higher numbers draw higher ids. So a row below those ids appears only when a
//! transaction below the mark ends that was open. Each read says which are open. If one of them has ended, what the read
//! has found is dropped, and the next one begins at a level below that transaction, so that no message behind its rows
//! is published first.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::store::{LaneLook, OutboxFound};

/// How old a level is before reads begin there: shorter transactions cost nothing then.
const SETTLED: Duration = Duration::from_secs(2);

/// The time between two levels.
const BETWEEN: Duration = Duration::from_millis(500);

/// How often each lane is read from its start, whatever the levels say.
const WHOLE: Duration = Duration::from_secs(30);

/// A read that takes longer does not ask for more lanes the next time.
const SLOW: Duration = Duration::from_secs(1);

/// An id for each lane.
type Ids = BTreeMap<u8, i64>;

/// From where lanes are read.
#[derive(Debug)]
pub(super) struct Floors {
    /// From the oldest. The first one is the start of each lane.
    levels: Vec<Level>,
    /// The transactions that were open at the last read.
    open: BTreeSet<i64>,
    /// The oldest transaction that has ended since, of which rows may be missing.
    ended: Option<i64>,
    /// The highest id that was read.
    highest: Ids,
    /// Lanes that are read from a lower id once.
    once: Ids,
    /// The lowest level from which a lane was read since it has a blocked key, whose messages were left out.
    lowest: Ids,
    asked: Asked,
    /// How many lanes one read may ask for, and the one that is the first.
    width: usize,
    first: u8,
    /// When the next lane is read from its start, and which one.
    whole: (Instant, u8),
}

#[derive(Debug, Default)]
struct Level {
    at: Option<Instant>,
    mark: i64,
    /// Up to which id all was read.
    read: Ids,
    is_settled: bool,
}

impl Level {
    fn read(&self, lane: u8) -> i64 {
        self.read.get(&lane).copied().unwrap_or(0)
    }
}

/// What the read that runs has asked for.
#[derive(Debug, Default)]
struct Asked {
    mark: i64,
    /// The level's id of each lane.
    read: Ids,
    once: Ids,
}

impl Floors {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            levels: vec![Level { is_settled: true, ..Level::default() }],
            open: BTreeSet::new(),
            ended: None,
            highest: Ids::new(),
            once: Ids::new(),
            lowest: Ids::new(),
            asked: Asked::default(),
            width: usize::MAX,
            first: 0,
            whole: (now + WHOLE, 0),
        }
    }

    /// Returns where the next read begins in these lanes. It may not ask for all of them.
    pub(super) fn look(&mut self, lanes: &[u8], limit: u32, now: Instant) -> Vec<LaneLook> {
        let next = |from: u8| lanes.iter().copied().find(|lane| *lane >= from).or(lanes.first().copied());
        if now >= self.whole.0
            && let Some(lane) = next(self.whole.1)
        {
            self.whole = (now + WHOLE / u32::try_from(lanes.len()).unwrap_or(1), lane.saturating_add(1));
            self.restart(lane, 0);
        }
        let first = lanes.iter().position(|lane| *lane >= self.first).unwrap_or(0);
        let some = lanes.iter().cycle().skip(first).take(self.width.min(lanes.len()));
        let ended = self.ended.unwrap_or(i64::MAX);
        let level = self.levels.iter().rfind(|level| level.is_settled && level.mark <= ended);
        let read = some.map(|lane| (*lane, level.map_or(0, |level| level.read(*lane)))).collect::<Ids>();
        let once = read.keys().filter_map(|lane| Some((*lane, self.once.remove(lane)?))).collect();
        self.asked = Asked { mark: level.map_or(0, |level| level.mark), read, once };
        let look = |(lane, read): (&u8, &i64)| {
            let floor = self.asked.once.get(lane).copied().unwrap_or(i64::MAX).min(read.saturating_add(1));
            LaneLook { lane: *lane, floor, limit }
        };
        self.asked.read.iter().map(look).collect()
    }

    /// Returns whether the next read has to bring a mark.
    pub(super) fn wants_mark(&self, now: Instant) -> bool {
        let Some(last) = self.levels.last() else { return false };
        last.at.is_none_or(|at| now >= at + BETWEEN) && self.highest.iter().any(|(lane, id)| *id > last.read(*lane))
    }

    /// Reads this lane from this id, once: messages of a key were left out that is not blocked any more.
    pub(super) fn reopen(&mut self, lane: u8, id: i64) {
        self.restart(lane, id.min(self.lowest.get(&lane).copied().unwrap_or(i64::MAX)));
    }

    fn restart(&mut self, lane: u8, id: i64) {
        self.once.entry(lane).and_modify(|from| *from = id.min(*from)).or_insert(id);
    }

    /// Reads this lane from its start, as if it had never been read.
    pub(super) fn forget(&mut self, lane: u8) {
        for ids in [&mut self.highest, &mut self.once, &mut self.lowest] {
            ids.remove(&lane);
        }
        for level in &mut self.levels {
            level.read.remove(&lane);
        }
        self.restart(lane, 0);
    }

    /// Records that a read has failed. It may have been too slow, so the next one asks for fewer lanes.
    pub(super) fn failed(&mut self) {
        let Asked { read, once, .. } = std::mem::take(&mut self.asked);
        self.width = (read.len() / 2).max(1);
        self.turn(&read);
        for (lane, id) in once {
            self.restart(lane, id);
        }
    }

    /// Records what a read has found, which began at `began`, and takes out of it what must not be published: all, if the
    /// next read has to begin lower; and the rows of the lanes in `dropped`, which are read again. In the lanes of
    /// `blocked` it has left out messages. Returns whether the next read has to begin lower.
    pub(super) fn found(
        &mut self,
        found: &mut OutboxFound,
        began: Instant,
        dropped: &BTreeSet<u8>,
        blocked: &BTreeSet<u8>,
    ) -> bool {
        let Asked { mark, read, once } = std::mem::take(&mut self.asked);
        let open: BTreeSet<i64> = found.open.iter().copied().collect();
        let ended = self.open.difference(&open).copied().find(|ended| *ended < mark);
        for (lane, id) in once {
            if ended.is_some() || dropped.contains(&lane) {
                self.restart(lane, id);
            }
        }
        if ended.is_some() {
            self.ended = ended.min(self.ended).or(ended);
            found.rows.clear();
            return true;
        }
        (self.open, self.ended) = (open, None);
        found.rows.retain(|row| !dropped.contains(&row.lane));
        self.widen(began, &read);
        let mut last: Last = read.keys().filter(|lane| !dropped.contains(lane)).map(|lane| (*lane, None)).collect();
        for row in &found.rows {
            last.insert(row.lane, Some(row.id));
            let highest = self.highest.entry(row.lane).or_default();
            *highest = row.id.max(*highest);
        }
        self.note_lowest(&read, &last, blocked);
        let base = self.levels.iter().rposition(|level| level.is_settled && level.mark <= mark).unwrap_or(0);
        let base = self.levels.get(base).map(|level| level.read.clone()).unwrap_or_default();
        self.lower(&base, &last);
        if let Some(mark) = found.mark.filter(|_| self.wants_mark(began)) {
            let read = self.highest.iter().map(|(lane, highest)| (*lane, known(*lane, *highest, &base, &last))).collect();
            self.levels.push(Level { at: Some(began), mark, read, is_settled: false });
        }
        self.settle(began);
        false
    }

    /// Nothing above what this read has found is known to be complete.
    fn lower(&mut self, base: &Ids, last: &Last) {
        for level in &mut self.levels {
            level.read.iter_mut().for_each(|(lane, id)| *id = known(*lane, *id, base, last));
        }
    }

    /// Lets reads begin at the levels that are old enough, and forgets those that no open transaction needs.
    fn settle(&mut self, began: Instant) {
        let is_old = |level: &Level| level.at.is_none_or(|at| began >= at + SETTLED);
        let top = self.levels.iter().rposition(is_old).unwrap_or(0);
        self.levels.iter_mut().take(top + 1).for_each(|level| level.is_settled = true);
        let below = |open: &i64| self.levels.partition_point(|level| level.mark <= *open).saturating_sub(1);
        let needed: BTreeSet<usize> = self.open.iter().map(below).collect();
        let mut place = 0..;
        self.levels.retain(|_| place.next().is_some_and(|at| at == 0 || at >= top || needed.contains(&at)));
    }

    fn note_lowest(&mut self, read: &Ids, last: &Last, blocked: &BTreeSet<u8>) {
        self.lowest.retain(|lane, _| blocked.contains(lane));
        for lane in blocked.iter().filter(|lane| last.contains_key(lane)) {
            let from = read.get(lane).copied().unwrap_or(0).saturating_add(1);
            self.lowest.entry(*lane).and_modify(|lowest| *lowest = from.min(*lowest)).or_insert(from);
        }
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

/// The last id that was found in each lane that was read.
type Last = BTreeMap<u8, Option<i64>>;

/// Up to which id a lane is known after a read, if it would be known up to `id` without what the read has found.
fn known(lane: u8, id: i64, base: &Ids, last: &Last) -> i64 {
    match last.get(&lane) {
        // There may be more behind it.
        Some(Some(last)) => id.min(*last),
        Some(None) => id,
        // It was not read.
        None => id.min(base.get(&lane).copied().unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::outbox::StagedMessage;
    use crate::{Outgoing, store::OutboxRow};

    /// A lane, and the time since the relay has started.
    struct Reader {
        floors: Floors,
        start: Instant,
    }

    impl Reader {
        fn new() -> Self {
            let start = Instant::now();
            Self { floors: Floors::new(start), start }
        }

        fn floors(&mut self, at: f64) -> Vec<i64> {
            let now = self.start + Duration::from_secs_f64(at);
            self.floors.look(&[0, 1], 16, now).iter().map(|look| look.floor).collect()
        }

        /// Reads lane 0 from where it is to be read; returns that, and what was found.
        fn read(&mut self, at: f64, ids: &[i64], open: &[i64], mark: i64) -> (i64, Vec<i64>) {
            let floor = self.floors(at)[0];
            let row = |id: &i64| OutboxRow {
                id: *id,
                lane: 0,
                message: StagedMessage::new(Uuid::nil(), Outgoing::new("a", "")),
                age: Duration::ZERO,
                due: Duration::ZERO,
            };
            let mut found = OutboxFound { rows: ids.iter().map(row).collect(), open: open.to_vec(), mark: Some(mark) };
            let now = self.start + Duration::from_secs_f64(at);
            self.floors.found(&mut found, now, &BTreeSet::new(), &BTreeSet::from([0]));
            (floor, found.rows.iter().map(|row| row.id).collect())
        }
    }

    #[tokio::test]
    async fn a_floor_follows_what_was_read_after_two_seconds() {
        let mut reader = Reader::new();
        reader.read(0.0, &[1, 2], &[], 100);
        reader.read(1.0, &[3], &[], 110);
        assert_eq!(reader.read(1.9, &[], &[], 120).0, 1);
        assert_eq!(reader.read(2.0, &[4], &[], 130).0, 1);
        assert_eq!(reader.read(2.1, &[], &[], 140).0, 3, "3 was read later");
        reader.floors.forget(0);
        assert_eq!(reader.floors(2.2), [0, 1]);
    }

    #[tokio::test]
    async fn what_was_not_read_yet_is_above_each_floor() {
        let mut reader = Reader::new();
        // 9 is read, while the transaction 50 has not committed 1 to 8 yet.
        reader.read(0.0, &[9], &[50], 100);
        reader.read(1.0, &[1, 2, 3], &[], 110);
        reader.read(2.0, &[4, 5, 6], &[], 120);
        assert!(reader.floors(2.1)[0] <= 7, "7 and 8 are unread");
    }

    #[tokio::test]
    async fn what_a_transaction_left_that_was_open_is_read_before_anything_else() {
        let mut reader = Reader::new();
        for at in 0..10 {
            // The transaction 250 began to write at 2.5 s.
            let open: &[i64] = if at > 2 { &[250] } else { &[] };
            reader.read(at.into(), &[10 * i64::from(at) + 9], open, 100 * i64::from(at) + 100);
        }
        assert_eq!(reader.read(9.5, &[], &[250], 1001).0, 80);
        // It has committed 25, and others behind it 100.
        assert_eq!(reader.read(10.0, &[100], &[], 1002), (80, vec![]), "100 may be behind a message of its key");
        assert_eq!(reader.read(10.1, &[25], &[], 1003), (20, vec![25]), "it has no id that is lower");
        assert_eq!(reader.floors(10.2)[0], 26, "there may be more behind 25");
        assert_eq!(reader.read(10.2, &[26, 100], &[], 1004).1, [26, 100]);
    }

    #[tokio::test]
    async fn levels_are_kept_as_long_as_a_transaction_needs_them() {
        let mut reader = Reader::new();
        for at in 0..1000 {
            reader.read(at.into(), &[at.into()], &[5, 20_050, i64::MAX / 2], 100 * i64::from(at));
        }
        assert!(reader.floors.levels.len() < 10, "{}", reader.floors.levels.len());
        reader.read(1000.0, &[], &[5, i64::MAX / 2], 200_000);
        assert_eq!(reader.read(1000.1, &[1000], &[5, i64::MAX / 2], 200_100), (201, vec![1000]));
        reader.read(1000.2, &[], &[i64::MAX / 2], 200_200);
        assert_eq!(reader.read(1000.3, &[], &[i64::MAX / 2], 200_300).0, 1);
    }

    #[tokio::test]
    async fn a_key_that_is_not_blocked_any_more_is_read_from_where_it_was_left_out() {
        let mut reader = Reader::new();
        for at in 0..10 {
            let open: &[i64] = if at > 2 { &[250] } else { &[] };
            reader.read(at.into(), &[10 * i64::from(at) + 9], open, 100 * i64::from(at) + 100);
        }
        reader.floors.reopen(0, 60);
        assert_eq!(reader.floors(9.1)[0], 60.min(reader.floors.lowest[&0]));
        reader.floors.failed();
        reader.floors.width = usize::MAX;
        let floor = reader.read(9.2, &[], &[250], 1001).0;
        assert!(floor <= 60, "the failed read is repeated: {floor}");
        assert!(reader.floors(9.3)[0] > 60, "once");
    }

    #[tokio::test]
    async fn each_lane_is_read_from_its_start_in_half_a_minute() {
        let mut reader = Reader::new();
        reader.floors.highest.insert(1, 7);
        for at in 0..30 {
            reader.read(at.into(), &[at.into()], &[], 0);
        }
        assert!(reader.read(29.9, &[], &[], 0).0 > 20);
        assert_eq!(reader.read(30.0, &[], &[], 0).0, 0);
        assert!(reader.read(30.1, &[], &[], 0).0 > 20);
        assert_eq!(reader.floors(45.0)[1], 0);
    }

    #[tokio::test]
    async fn a_read_that_fails_is_tried_with_fewer_lanes() {
        let (now, lanes) = (Instant::now(), (0..64).collect::<Vec<u8>>());
        let mut floors = Floors::new(now);
        let ask = |floors: &mut Floors| floors.look(&lanes, 16, now).iter().map(|look| look.lane).collect::<Vec<u8>>();
        assert_eq!(ask(&mut floors).len(), 64);
        for lanes in [32, 16, 8] {
            floors.failed();
            assert_eq!(ask(&mut floors).len(), lanes);
        }
        let mut all: BTreeSet<u8> = BTreeSet::new();
        for _ in 0..8 {
            let slow = now.checked_sub(SLOW).unwrap();
            floors.found(&mut OutboxFound::default(), slow, &BTreeSet::new(), &BTreeSet::new());
            all.extend(ask(&mut floors));
        }
        assert_eq!(all.len(), 64, "all have their turn");
        for _ in 0..8 {
            floors.found(&mut OutboxFound::default(), now, &BTreeSet::new(), &BTreeSet::new());
            ask(&mut floors);
        }
        assert_eq!(ask(&mut floors).len(), 64);
    }
}
