//! Tests of the floors.

use uuid::Uuid;

use super::*;

mod model;
use crate::outbox::StagedMessage;
use crate::{Outgoing, store::OutboxRow};

fn row(lane: u8, id: i64) -> OutboxRow {
    let message = StagedMessage::new(Uuid::nil(), Outgoing::new("a", ""));
    OutboxRow { id, lane, message, age: Duration::ZERO, due: Duration::ZERO }
}

/// A lane, and the time since the relay has started.
struct Reader {
    floors: Floors,
    start: Instant,
    limit: u32,
    cut: Vec<u8>,
    /// Where the lanes are read for keys of which messages are unread.
    behind: BTreeMap<u8, LaneLook>,
    covered: Option<BTreeMap<u8, Covered>>,
}

impl Reader {
    fn new() -> Self {
        let start = Instant::now();
        let (behind, covered) = (BTreeMap::new(), None);
        Self { floors: Floors::new(start), start, limit: 16, cut: Vec::new(), behind, covered }
    }

    fn floors(&mut self, at: f64) -> Vec<i64> {
        let now = self.start + Duration::from_secs_f64(at);
        self.floors.read_whole(&[0, 1], now);
        self.floors.look(&[0, 1], self.limit, &self.behind).iter().map(|look| look.floor).collect()
    }

    /// Reads lane 0 from where it is to be read; returns that, and what was found.
    fn read(&mut self, at: f64, ids: &[i64], open: &[i64], mark: i64) -> (i64, Vec<i64>) {
        let floor = self.floors(at)[0];
        let (rows, cut) = (ids.iter().map(|id| row(0, *id)).collect(), self.cut.clone());
        let mut found = OutboxFound { rows, cut, open: open.to_vec(), mark: Some(mark), highest: 0 };
        let now = self.start + Duration::from_secs_f64(at);
        self.covered = self.floors.found(&mut found, now, &BTreeSet::new());
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
    assert_eq!(reader.floors(2.2), [0, 3], "what holds of one lane holds of all others");
}

#[tokio::test]
async fn a_floor_follows_sooner_while_reads_are_costly() {
    // Each read ends now, so it takes seconds.
    let start = Instant::now().checked_sub(Duration::from_secs(100)).unwrap();
    let mut reader = Reader { start, ..Reader::new() };
    reader.read(0.0, &[1, 2], &[], 100);
    reader.read(0.15, &[3], &[], 110);
    assert_eq!(reader.read(0.19, &[], &[], 120).0, 1);
    assert_eq!(reader.read(0.2, &[4], &[], 130).0, 1);
    assert_eq!(reader.read(0.35, &[], &[], 140).0, 3);
    assert_eq!(reader.read(0.36, &[], &[], 150).0, 4);
}

#[tokio::test]
async fn a_transaction_that_ends_before_the_lane_is_read_again_was_in_no_list() {
    let (mut floors, start) = (Floors::new(Instant::now()), Instant::now());
    let mut read = |at: f64, lanes: &[u8], rows: Vec<OutboxRow>, mark: i64| {
        let first = floors.look(lanes, 16, &BTreeMap::new())[0].floor;
        let mut found = OutboxFound { rows, mark: Some(mark), ..OutboxFound::default() };
        floors.found(&mut found, start + Duration::from_secs_f64(at), &BTreeSet::new());
        first
    };
    // The snapshot is from before the end of 99, which has written 9 to lane 1: it does not list 100, which has drawn 5 for
    // lane 0. Then 100 ends.
    read(0.0, &[0, 1], vec![row(1, 9)], 101);
    read(2.0, &[1], vec![], 102);
    assert!(read(2.1, &[0, 1], vec![], 103) <= 5, "5 is there, and no read has seen it");
    read(2.2, &[0, 1], vec![], 104);
    assert_eq!(read(2.3, &[0, 1], vec![], 105), 10, "a read has covered lane 0 since");
}

#[tokio::test]
async fn after_a_transaction_has_cost_a_read_the_next_levels_settle_as_usual() {
    let start = Instant::now().checked_sub(Duration::from_secs(100)).unwrap();
    let mut reader = Reader { start, ..Reader::new() };
    for at in 0..50 {
        let at = f64::from(at) / 10.0;
        reader.read(at, &[(at * 10.0) as i64 + 1], &[330], (at * 100.0) as i64 + 100);
    }
    assert!(reader.floors(4.91)[0] > 40, "the level is less than a second old");
    // 330 began at 2.3 s.
    assert!(reader.read(4.92, &[60], &[], 600).1.is_empty());
    reader.read(4.93, &[], &[], 601);
    assert!((20..=30).contains(&reader.floors(4.94)[0]), "the level is two seconds old: {:?}", reader.floors(4.94));
}

#[tokio::test]
async fn a_short_transaction_beside_a_long_one_does_not_let_reads_begin_behind_the_long_one() {
    let start = Instant::now().checked_sub(Duration::from_secs(100)).unwrap();
    let mut reader = Reader { start, ..Reader::new() };
    for at in 0..50 {
        // 555 began at 4.55 s.
        let open: &[i64] = if at >= 46 { &[5, 555] } else { &[5] };
        reader.read(f64::from(at) / 10.0, &[i64::from(at) + 1], open, 10 * i64::from(at) + 100);
    }
    assert!(reader.read(4.92, &[60], &[5], 600).1.is_empty());
    assert!(reader.floors(4.93)[0] > 20, "{:?}", reader.floors(4.93));
}

#[tokio::test]
async fn what_was_not_read_yet_is_above_each_floor() {
    let mut reader = Reader { limit: 3, ..Reader::new() };
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
    reader.limit = 1;
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
async fn a_lane_is_read_from_a_lower_id_once() {
    let mut reader = Reader::new();
    for at in 0..10 {
        reader.read(at.into(), &[10 * i64::from(at) + 9], &[5], 100 * i64::from(at) + 100);
    }
    reader.floors.reopen(0, 60);
    assert_eq!(reader.floors(9.1)[0], 60);
    let now = reader.start + Duration::from_secs_f64(9.1);
    reader.floors.failed(now, now);
    reader.floors.width = usize::MAX;
    assert_eq!(reader.read(9.2, &[], &[5], 1001).0, 60, "the failed read is repeated");
    assert_eq!(reader.floors(9.3)[0], 80, "once");
}

#[tokio::test]
async fn a_message_that_is_read_again_lowers_no_level() {
    let mut reader = Reader::new();
    for at in 0..10 {
        reader.read(at.into(), &[10 * i64::from(at) + 9], &[5], 100 * i64::from(at) + 100);
    }
    reader.floors.reopen(0, 9);
    assert_eq!(reader.read(9.1, &[9], &[5], 1001), (9, vec![9]));
    assert_eq!(reader.floors(9.2)[0], 80, "as before");
    reader.cut.push(0);
    reader.floors.reopen(0, 9);
    reader.read(9.3, &[9], &[5], 1002);
    reader.cut.clear();
    assert_eq!(reader.read(9.4, &[], &[5], 1003).0, 10, "its payload has left no room for what is behind it");
    assert_eq!(reader.floors(9.5)[0], 80, "as before");
}

#[tokio::test]
async fn a_read_for_a_key_lowers_no_level_and_raises_none() {
    let mut reader = Reader::new();
    for at in 0..10 {
        reader.read(at.into(), &[10 * i64::from(at) + 9], &[], 100 * i64::from(at) + 100);
    }
    reader.behind.insert(0, LaneLook { lane: 0, floor: 30, limit: 2 });
    assert_eq!(reader.read(9.1, &[31, 32], &[], 1001), (30, vec![31, 32]));
    assert_eq!(reader.covered.as_ref().unwrap()[&0], Covered { from: 80, to: Some(32) });
    reader.behind.insert(0, LaneLook { lane: 0, floor: 95, limit: 2 });
    assert_eq!(reader.read(12.0, &[95, 96], &[], 1002), (80, vec![95, 96]), "no higher than the level");
    reader.behind.clear();
    let (floor, rows) = reader.read(12.1, &[200], &[], 1003);
    assert_eq!((floor, rows, reader.covered.take().unwrap()[&0]), (90, vec![200], Covered { from: 90, to: None }));
}

#[tokio::test]
async fn a_lane_rises_again_behind_a_read_for_a_key_that_has_seen_the_end_of_a_transaction() {
    let mut reader = Reader::new();
    for at in 0..10 {
        let open: &[i64] = if at == 9 { &[950] } else { &[] };
        reader.read(at.into(), &[10 * i64::from(at) + 9], open, 100 * i64::from(at) + 100);
    }
    reader.read(9.05, &[], &[950], 1001);
    reader.behind.insert(0, LaneLook { lane: 0, floor: 30, limit: 2 });
    reader.read(9.1, &[31, 32], &[], 1002);
    reader.behind.clear();
    assert_eq!(reader.read(9.2, &[], &[], 1003).0, 80, "950 may have left something there");
    reader.read(11.0, &[], &[], 1004);
    assert_eq!(reader.floors(11.1)[0], 100, "it was read at 9.2");
}

#[tokio::test]
async fn after_a_failover_all_is_read_again() {
    let mut reader = Reader::new();
    for at in 0..10 {
        reader.read(at.into(), &[10 * i64::from(at) + 9], &[], 100 * i64::from(at) + 100);
    }
    assert_eq!(reader.read(9.6, &[120], &[], 950), (80, vec![]), "ids below the floor may be given again");
    assert_eq!(reader.read(9.7, &[50, 120], &[], 951), (1, vec![50, 120]));
}

#[tokio::test]
async fn after_a_failed_read_the_next_one_brings_a_mark() {
    let mut reader = Reader::new();
    for at in 0..10 {
        reader.read(f64::from(at), &[10 * i64::from(at.min(5)) + 9], &[], 100 * i64::from(at) + 100);
    }
    let now = reader.start + Duration::from_secs(10);
    assert!(!reader.floors.wants_mark(now), "nothing was staged");
    reader.floors.failed(now, now);
    assert!(reader.floors.wants_mark(now), "the server may have failed over");
    assert!(reader.read(10.1, &[58], &[], 550).1.is_empty(), "it has");
    assert_eq!(reader.read(10.2, &[58], &[], 551), (1, vec![58]));
}

#[tokio::test]
async fn each_lane_is_read_from_its_start_in_half_a_minute() {
    let mut reader = Reader::new();
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
    let ask = |floors: &mut Floors| {
        let looks = floors.look(&lanes, 16, &BTreeMap::new());
        looks.iter().map(|look| look.lane).collect::<Vec<u8>>()
    };
    assert_eq!(ask(&mut floors).len(), 64);
    for lanes in [32, 16, 8] {
        floors.failed(now, now);
        assert_eq!(ask(&mut floors).len(), lanes);
    }
    let mut all: BTreeSet<u8> = BTreeSet::new();
    for _ in 0..8 {
        let slow = now.checked_sub(SLOW).unwrap();
        floors.found(&mut OutboxFound::default(), slow, &BTreeSet::new());
        all.extend(ask(&mut floors));
    }
    assert_eq!(all.len(), 64, "all have their turn");
    for _ in 0..8 {
        floors.found(&mut OutboxFound::default(), now, &BTreeSet::new());
        ask(&mut floors);
    }
    assert_eq!(ask(&mut floors).len(), 64);
}
