//! The low-water mark beside transactions that PostgreSQL would list, and single rules of it.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::*;
use crate::outbox::StagedMessage;
use crate::{Outgoing, store::OutboxRow};

fn row(id: i64) -> OutboxRow {
    let message = StagedMessage::new(Uuid::nil(), Outgoing::new("a", ""));
    OutboxRow { id, message, age: Duration::ZERO, due: Duration::ZERO }
}

/// The database of a relay, and its low-water mark.
struct Model {
    seed: u64,
    next_number: i64,
    next_id: i64,
    /// The open transactions, and the rows that they have written.
    open: BTreeMap<i64, Vec<i64>>,
    /// The highest transaction that has ended. A snapshot lists none above it.
    ended: i64,
    /// Committed and not published.
    left: BTreeSet<i64>,
    low_water: LowWater,
    /// Whether the role may read the sequence.
    knows_sequence: bool,
    /// How many reads began above their start.
    raised: usize,
}

impl Model {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            next_number: 1,
            next_id: 1,
            open: BTreeMap::new(),
            ended: 0,
            left: BTreeSet::new(),
            low_water: LowWater::new(),
            knows_sequence: seed.is_multiple_of(2),
            raised: 0,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    fn number(&mut self) -> i64 {
        self.next_number += 1;
        self.next_number
    }

    /// Transactions begin, write and commit.
    fn write(&mut self) {
        for _ in 0..self.random(6) {
            let open: Vec<i64> = self.open.keys().copied().collect();
            let some = self.random(open.len().max(1) as u64) as usize;
            match (self.random(4), open.get(some)) {
                // The oldest ones stay open for long.
                (0, Some(number)) if some > 2 || self.random(40) == 0 => {
                    self.ended = self.ended.max(*number);
                    let rows = self.open.remove(number).unwrap();
                    self.left.extend(rows);
                }
                (1 | 2, Some(number)) => {
                    self.open.get_mut(number).unwrap().push(self.next_id);
                    self.next_id += 1;
                }
                _ => {
                    let number = self.number();
                    self.open.insert(number, Vec::new());
                }
            }
        }
    }

    /// Reads up to so many rows. Each is found before all rows behind it that were committed by then.
    fn read(&mut self, now: Instant, limit: usize) {
        let bounds = self.low_water.bounds();
        self.raised += usize::from(bounds.from > 1);
        let marks = self.low_water.wants_mark(now);
        let left = self.left.clone();
        let ids: Vec<i64> = left.range(bounds.from..=bounds.to).take(limit).copied().collect();
        let open = self.open.range(..=self.ended).map(|(number, _)| *number).collect();
        let snapshot = OutboxSnapshot { open, end: self.ended + 1, table: 7 };
        // Transactions go on between the snapshot and the mark, and behind it.
        self.write();
        let mark = marks.then(|| OutboxMark {
            highest: if self.knows_sequence { self.next_id - 1 } else { 0 },
            number: self.number(),
        });
        self.ended = self.ended.max(mark.map_or(0, |mark| mark.number));
        self.write();
        if self.random(40) == 0 {
            return self.low_water.failed();
        }
        let rows = ids.iter().copied().map(row).collect();
        let found = OutboxFound { rows, is_cut: ids.len() >= limit, snapshot: Some(snapshot), mark };
        match self.low_water.ended(Some(bounds), &found, now) {
            Verdict::Drop => return,
            verdict => assert_eq!(verdict, Verdict::Keep),
        }
        let overtaken = left.iter().find(|id| ids.last().is_some_and(|last| *id < last) && !ids.contains(id));
        assert_eq!(overtaken, None, "rows {ids:?} have overtaken it");
        ids.iter().for_each(|id| assert!(self.left.remove(id)));
    }
}

#[tokio::test]
async fn no_row_is_skipped_or_overtaken() {
    let mut raised = 0;
    for seed in 0..60 {
        let (mut model, limit) = (Model::new(seed), if seed % 3 == 0 { 2 } else { 100 });
        let mut now = Instant::now();
        for _ in 0..400 {
            now += Duration::from_millis(model.random(150));
            model.write();
            model.read(now, limit);
        }
        raised += model.raised;
        for (number, rows) in std::mem::take(&mut model.open) {
            model.ended = model.ended.max(number);
            model.left.extend(rows);
        }
        let all = model.left.clone();
        for _ in 0..100 {
            now += Duration::from_millis(200);
            model.read(now, 1000);
        }
        let skipped: Vec<_> = all.intersection(&model.left).collect();
        assert!(skipped.is_empty(), "{skipped:?}, seed {seed}");
    }
    assert!(raised > 5000, "hardly any read began at a low-water mark: {raised}");
}

/// A low-water mark, and reads of it at times in seconds.
struct Reader {
    low_water: LowWater,
    start: Instant,
}

impl Reader {
    fn new() -> Self {
        Self { low_water: LowWater::new(), start: Instant::now() }
    }

    /// Reads; `open` and `end` are those of the snapshot, `mark` is drawn behind it.
    fn read(&mut self, at: f64, ids: &[i64], (open, end): (&[i64], i64), mark: Option<(i64, i64)>) -> Verdict {
        let now = self.start + Duration::from_secs_f64(at);
        let mark = mark.map(|(number, highest)| OutboxMark { number, highest });
        let snapshot = Some(OutboxSnapshot { open: open.to_vec(), end, table: 1 });
        let rows = ids.iter().copied().map(row).collect();
        let found = OutboxFound { rows, is_cut: false, snapshot, mark };
        let bounds = self.low_water.bounds();
        self.low_water.adapt(Duration::ZERO);
        self.low_water.ended(Some(bounds), &found, now)
    }

    fn from(&self) -> i64 {
        self.low_water.bounds().from
    }
}

#[tokio::test]
async fn the_read_behind_a_mark_raises_the_low_water() {
    let mut reader = Reader::new();
    reader.read(0.0, &[1, 2], (&[], 10), Some((10, 2)));
    assert_eq!(reader.from(), 1, "a transaction below the mark may be in no list yet");
    reader.read(0.1, &[], (&[], 10), None);
    assert_eq!(reader.from(), 1, "its snapshot does not reach the mark");
    reader.read(0.2, &[3], (&[], 12), None);
    assert_eq!(reader.from(), 3, "3 was read later");
}

#[tokio::test]
async fn a_transaction_that_stays_open_is_remembered_and_its_end_drops_a_read() {
    let mut reader = Reader::new();
    reader.read(0.0, &[1, 2], (&[], 10), Some((10, 2)));
    reader.read(0.1, &[], (&[], 11), Some((20, 2)));
    reader.read(1.0, &[4, 5], (&[15], 19), Some((30, 5)));
    for at in [1.1, 1.9] {
        reader.read(at, &[], (&[15], 31), None);
        assert_eq!(reader.from(), 3, "it may end soon");
    }
    reader.read(2.1, &[], (&[15], 31), None);
    assert_eq!(reader.from(), 6);
    assert_eq!(reader.read(3.2, &[6], (&[15], 31), None), Verdict::Keep);
    assert_eq!(reader.read(3.3, &[7], (&[], 32), None), Verdict::Drop, "3 may be in front of 7");
    assert_eq!(reader.from(), 3);
    assert_eq!(reader.read(3.4, &[3, 7], (&[40], 50), None), Verdict::Keep);
    assert_eq!(reader.from(), 6, "all below the mark of 5 but 15 had ended before");
}

#[tokio::test]
async fn behind_a_failure_all_is_read_again() {
    let mut reader = Reader::new();
    reader.read(0.0, &[1, 2], (&[], 10), Some((10, 2)));
    let bounds = reader.low_water.bounds();
    reader.read(0.1, &[], (&[], 12), None);
    assert_eq!(reader.from(), 3);
    reader.low_water.failed();
    assert_eq!((reader.from(), reader.low_water.bounds().to), (1, RANGE), "a part at first");
    reader.read(0.2, &[], (&[], 13), Some((14, 500_000)));
    // A read that began before the failure.
    let found =
        OutboxFound { snapshot: Some(OutboxSnapshot { end: 20, open: vec![], table: 1 }), ..OutboxFound::default() };
    let late = Bounds { from: 3, ..bounds };
    reader.low_water.adapt(Duration::ZERO);
    reader.low_water.ended(Some(late), &found, reader.start);
    assert_eq!(reader.from(), 1, "it says nothing of 1 and 2");
    reader.read(0.3, &[], (&[], 20), None);
    assert_eq!(reader.from(), 4 * RANGE + 1, "quick reads cover more");
    reader.low_water.adapt(2 * SLOW);
    assert_eq!(reader.low_water.range, 4 * RANGE, "slow ones cover less");
}

#[tokio::test]
async fn another_table_and_numbers_that_go_back_are_noticed() {
    let mut reader = Reader::new();
    reader.read(0.0, &[1, 2], (&[], 10), Some((10, 2)));
    assert_eq!(reader.read(0.1, &[], (&[], 12), Some((10, 2))), Verdict::Replaced, "its number is no higher");
    let mut reader = Reader::new();
    reader.read(0.0, &[1, 2], (&[], 10), Some((10, 2)));
    assert_eq!(reader.read(0.1, &[], (&[], 12), Some((13, 1))), Verdict::Replaced, "2 was given before");
    let mut reader = Reader::new();
    reader.read(0.0, &[1, 2], (&[], 10), None);
    let found =
        OutboxFound { snapshot: Some(OutboxSnapshot { end: 10, open: vec![], table: 2 }), ..OutboxFound::default() };
    assert_eq!(reader.low_water.ended(None, &found, reader.start), Verdict::Replaced);
}

#[tokio::test]
async fn where_ids_are_in_the_order_of_commits_the_low_water_follows_at_once() {
    let (mut low_water, now) = (LowWater::new(), Instant::now());
    let mut read = |ids: &[i64], is_cut, highest| {
        let rows = ids.iter().copied().map(row).collect();
        let mark = Some(OutboxMark { number: 0, highest });
        let bounds = low_water.bounds();
        low_water.ended(Some(bounds), &OutboxFound { rows, is_cut, snapshot: None, mark }, now);
        low_water.bounds().from
    };
    assert_eq!(read(&[1, 2], true, 9), 3, "there may be more behind 2");
    assert_eq!(read(&[3], false, 9), 10, "all others were left out");
    assert_eq!(read(&[10], false, 9), 11, "10 was committed meanwhile");
    assert_eq!(read(&[], false, 0), 11);
}

#[tokio::test]
async fn the_second_cursor_walks_what_is_below_the_low_water() {
    let mut low_water = LowWater { low_water: 250_000, ..LowWater::new() };
    let walked: Vec<_> = (0..4).map(|_| low_water.walk()).collect();
    let bounds = |from, to| Some(Bounds { from, to });
    let expected = [bounds(1, 100_000), bounds(100_001, 200_000), bounds(200_001, 250_000), None];
    assert_eq!(walked, expected);
    assert_eq!(low_water.walk(), bounds(1, 100_000));
    low_water.walked(2000);
    assert_eq!(low_water.walk(), bounds(2001, 102_000), "the last read was cut");
    low_water.walked(2000);
    assert_eq!(low_water.walk(), bounds(2001, 102_000), "it was dropped");
    low_water.failed();
    low_water.walked(2000);
    assert_eq!(low_water.cursor, 0, "a statement has failed since");
}
