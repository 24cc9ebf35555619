//! From where lanes are read.
//!
//! To read all that is left of a lane cannot skip a message, however late its transaction commits. But under a long
//! transaction it reads the index entries of all messages that were deleted since, each time. So a lane is read from a
//! floor: above what was read at least two seconds ago. Only a transaction that was open by then can have rows below
//! the floor. Once one of those has ended, the store reads from the start, in the same snapshot in which it sees that,
//! so that no message behind those rows is published first.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::store::OutboxFound;

/// The time after which what was read becomes a floor.
const SETTLED: Duration = Duration::from_secs(2);

/// How often all lanes are read from the start, whatever the floors say.
const WHOLE: Duration = Duration::from_secs(30);

/// The highest id that was read of each lane.
type Highest = BTreeMap<u8, i64>;

/// From where lanes are read.
#[derive(Debug)]
pub(super) struct Floors {
    highest: Highest,
    floors: Highest,
    /// The transactions that may still commit rows below a floor.
    open: Vec<i64>,
    candidate: Option<Candidate>,
    whole: Instant,
    /// Whether the next read begins at the start of each lane.
    from_start: bool,
}

/// What becomes the floors.
#[derive(Debug)]
struct Candidate {
    at: Instant,
    highest: Highest,
    mark: Option<i64>,
}

impl Floors {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            highest: BTreeMap::new(),
            floors: BTreeMap::new(),
            open: Vec::new(),
            candidate: None,
            whole: now,
            from_start: false,
        }
    }

    /// Returns the lowest id to read.
    pub(super) fn of(&self, lane: u8) -> i64 {
        if self.from_start { 0 } else { self.floor(lane) }
    }

    fn floor(&self, lane: u8) -> i64 {
        self.floors.get(&lane).copied().unwrap_or(0)
    }

    /// The transactions that may still commit rows below a floor.
    pub(super) fn open(&self) -> &[i64] {
        &self.open
    }

    /// Returns whether the next read has to bring a mark.
    pub(super) fn wants_mark(&self) -> bool {
        self.candidate.is_none() && self.highest.iter().any(|(lane, id)| *id >= self.floor(*lane))
    }

    /// Reads this lane from the start.
    pub(super) fn restart(&mut self, lane: u8) {
        self.highest.remove(&lane);
        self.floors.remove(&lane);
        if let Some(candidate) = &mut self.candidate {
            candidate.highest.remove(&lane);
        }
    }

    /// Reads all lanes from the start if it is time.
    pub(super) fn read_all_in_time(&mut self, now: Instant) {
        if now.duration_since(self.whole) >= WHOLE {
            self.whole = now;
            self.from_start = true;
        }
    }

    /// Records what a read has found that began at `began`.
    pub(super) fn found(&mut self, found: &OutboxFound, began: Instant) {
        if found.from_start || self.from_start {
            // There may be more of them than this read was allowed to bring.
            let below: BTreeSet<u8> =
                found.rows.iter().filter(|row| row.id < self.floor(row.lane)).map(|row| row.lane).collect();
            below.into_iter().for_each(|lane| self.restart(lane));
            self.open.retain(|open| found.open.contains(open));
            self.from_start = false;
        }
        for row in &found.rows {
            let highest = self.highest.entry(row.lane).or_default();
            *highest = row.id.max(*highest);
        }
        if let Some(candidate) = self.candidate.take_if(|candidate| began.duration_since(candidate.at) >= SETTLED) {
            // Later transactions have higher ids than those of the candidate.
            let mark = candidate.mark.unwrap_or(0);
            self.open = found.open.iter().copied().filter(|open| *open < mark).collect();
            self.floors.extend(candidate.highest.into_iter().map(|(lane, id)| (lane, id.saturating_add(1))));
        }
        // What was read before this read has set its mark.
        if self.candidate.is_none() && found.mark.is_some() {
            self.candidate = Some(Candidate { at: began, highest: self.highest.clone(), mark: found.mark });
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::outbox::StagedMessage;
    use crate::{Outgoing, store::OutboxRow};

    fn found(ids: &[i64], open: &[i64], mark: Option<i64>) -> OutboxFound {
        let row = |id: &i64| OutboxRow {
            id: *id,
            lane: 0,
            message: StagedMessage::new(Uuid::nil(), Outgoing::new("a", "")),
            age: Duration::ZERO,
            due: Duration::ZERO,
        };
        OutboxFound { rows: ids.iter().map(row).collect(), from_start: false, open: open.to_vec(), mark }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn a_floor_follows_what_was_read_after_two_seconds() {
        let now = Instant::now();
        let mut floors = Floors::new(now);
        floors.found(&found(&[1, 2], &[], Some(0)), now);
        floors.found(&found(&[3], &[], Some(0)), now + SECOND);
        assert_eq!(floors.of(0), 0);
        floors.found(&found(&[4], &[], Some(0)), now + 2 * SECOND);
        assert_eq!(floors.of(0), 3, "3 was read later");
        floors.restart(0);
        assert_eq!(floors.of(0), 0);
    }

    #[tokio::test]
    async fn transactions_that_were_open_are_watched_and_later_ones_not() {
        let now = Instant::now();
        let mut floors = Floors::new(now);
        floors.found(&found(&[9], &[100], None), now);
        assert!(floors.wants_mark());
        floors.found(&found(&[], &[100], Some(110)), now);
        assert!(!floors.wants_mark());
        floors.found(&found(&[12], &[100, 115], None), now + 3 * SECOND);
        assert_eq!((floors.of(0), floors.open()), (10, &[100][..]));
        floors.found(&OutboxFound { from_start: true, ..found(&[13], &[], None) }, now + 4 * SECOND);
        assert_eq!((floors.of(0), floors.open()), (10, &[][..]), "it has left nothing");
        floors.found(&OutboxFound { from_start: true, ..found(&[5], &[], None) }, now + 4 * SECOND);
        assert_eq!(floors.of(0), 0, "there may be more behind 5");
    }

    #[tokio::test]
    async fn every_half_minute_all_is_read() {
        let now = Instant::now();
        let mut floors = Floors::new(now);
        floors.found(&found(&[1], &[], Some(0)), now);
        floors.found(&found(&[], &[], Some(0)), now + 3 * SECOND);
        floors.read_all_in_time(now + 29 * SECOND);
        assert_eq!(floors.of(0), 2);
        floors.read_all_in_time(now + 30 * SECOND);
        assert_eq!(floors.of(0), 0);
        floors.found(&found(&[], &[], None), now + 30 * SECOND);
        assert_eq!(floors.of(0), 2);
    }
}
