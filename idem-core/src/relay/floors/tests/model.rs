//! Floors against a model of transactions, ids and snapshots.

use super::*;

const LANES: u8 = 8;

struct Model {
    seed: u64,
    next_xid: i64,
    next_id: i64,
    /// The open transactions, and the rows that they have written.
    open: BTreeMap<i64, Vec<(u8, i64)>>,
    /// The highest transaction that has ended. A snapshot lists none above it.
    ended: i64,
    /// Committed and not published.
    left: BTreeSet<(u8, i64)>,
    floors: Floors,
    start: Instant,
    /// How many lanes were read from above their start.
    raised: usize,
}

impl Model {
    /// If it is slow, reads that have failed stay narrow.
    fn new(seed: u64, slow: bool) -> Self {
        let now = Instant::now();
        let start = if slow { now.checked_sub(Duration::from_secs(100)).unwrap() } else { now };
        Self {
            seed,
            next_xid: 1,
            next_id: 1,
            open: BTreeMap::new(),
            ended: 0,
            left: BTreeSet::new(),
            floors: Floors::new(start),
            start,
            raised: 0,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    fn number(&mut self) -> i64 {
        self.next_xid += 1;
        self.next_xid
    }

    /// Transactions begin, write and commit.
    fn write(&mut self) {
        for _ in 0..self.random(6) {
            let open: Vec<i64> = self.open.keys().copied().collect();
            let some = self.random(open.len().max(1) as u64) as usize;
            match (self.random(4), open.get(some)) {
                // The oldest ones stay open for long.
                (0, Some(xid)) if some > 2 || self.random(20) == 0 => {
                    self.ended = self.ended.max(*xid);
                    let rows = self.open.remove(xid).unwrap();
                    self.left.extend(rows);
                }
                (1 | 2, Some(xid)) => {
                    let row = (self.random(LANES.into()) as u8, self.next_id);
                    self.next_id += 1;
                    self.open.get_mut(xid).unwrap().push(row);
                }
                _ => {
                    let xid = self.number();
                    self.open.insert(xid, Vec::new());
                }
            }
        }
    }

    fn read(&mut self, at: f64, limit: u32) {
        let now = self.start + Duration::from_secs_f64(at);
        let lanes: Vec<u8> = (0..LANES).collect();
        let looks = self.floors.look(&lanes, limit, &BTreeMap::new());
        self.raised += looks.iter().filter(|look| look.floor > 1).count();
        let left = self.left.clone();
        let open = self.open.range(..=self.ended).map(|(xid, _)| *xid).collect();
        let mut found = OutboxFound { open, ..OutboxFound::default() };
        for look in looks {
            let rows = left.iter().filter(|(lane, id)| *lane == look.lane && *id >= look.floor);
            found.rows.extend(rows.take(limit as usize).map(|(lane, id)| row(*lane, *id)));
        }
        // Numbers are drawn between the snapshot and the mark.
        self.write();
        found.mark = self.floors.wants_mark(now).then(|| self.number());
        self.write();
        self.ended = self.ended.max(found.mark.unwrap_or(0));
        let chance = self.random(20);
        if chance == 0 {
            return self.floors.failed(now, now);
        }
        let dropped: BTreeSet<u8> = (chance == 1).then_some(at as u8 % LANES).into_iter().collect();
        dropped.iter().for_each(|lane| self.floors.forget(*lane));
        self.floors.found(&mut found, now, &dropped);
        let kept: BTreeSet<(u8, i64)> = found.rows.iter().map(|row| (row.lane, row.id)).collect();
        for (lane, id) in &kept {
            let first = left.range((*lane, 0)..(*lane, *id)).find(|row| !kept.contains(row));
            assert_eq!(first, None, "the row {id} of lane {lane} has overtaken it, at {at} s");
        }
        self.left.retain(|row| !kept.contains(row));
    }
}

/// In each lane, a row is found before all rows behind it that were committed by then; and all are found, before lanes are
/// read from their start.
#[tokio::test]
async fn no_row_is_skipped_however_few_lanes_are_read_at_once() {
    let mut raised = [0, 0];
    for seed in 0..30 {
        let slow = seed % 3 > 0;
        let (mut model, limit) = (Model::new(seed, slow), if seed % 2 == 0 { 2 } else { 100 });
        let mut at = 0.0;
        while at < 20.0 {
            at += model.random(150) as f64 / 1000.0;
            model.write();
            model.read(at, limit);
        }
        raised[usize::from(slow)] += model.raised;
        for (_, rows) in std::mem::take(&mut model.open) {
            model.left.extend(rows);
        }
        let all = model.left.clone();
        while at < 29.0 {
            at += 0.1;
            model.read(at, 100);
        }
        let skipped: Vec<_> = all.intersection(&model.left).collect();
        assert!(skipped.is_empty(), "{skipped:?}, seed {seed}");
    }
    assert!(raised.iter().all(|raised| *raised > 1000), "hardly any lane was read from a floor: {raised:?}");
}

/// A relay that starts under a long snapshot may have to read few lanes at once. It must not begin at their start for ever.
#[tokio::test]
async fn narrow_reads_begin_at_levels_as_wide_ones_do() {
    let start = Instant::now().checked_sub(Duration::from_secs(100)).unwrap();
    let (mut floors, lanes) = (Floors::new(start), (0..64).collect::<Vec<u8>>());
    floors.look(&lanes, 16, &BTreeMap::new());
    floors.failed(start, start);
    floors.look(&lanes, 16, &BTreeMap::new());
    floors.failed(start, start);
    let mut low = Vec::new();
    for number in 0..20 {
        // Each one takes over a second, so that it stays at 16 lanes.
        let now = start + Duration::from_secs_f64(1.4 * f64::from(number));
        let looks = floors.look(&lanes, 16, &BTreeMap::new());
        assert_eq!(looks.len(), 16);
        low.push(looks.iter().filter(|look| look.floor <= 1).count());
        let mark = floors.wants_mark(now).then_some(100 + i64::from(number));
        let rows = vec![row(looks[0].lane, 1000 + i64::from(number))];
        let mut found = OutboxFound { rows, open: vec![5], mark, ..OutboxFound::default() };
        floors.found(&mut found, now, &BTreeSet::new());
    }
    assert!(low[10..].iter().all(|low| *low == 0), "how many of 16 lanes were read from their start: {low:?}");
}
