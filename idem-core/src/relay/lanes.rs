//! The lanes that a relay has leased.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The lanes that a relay has leased.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<u8, Lane>,
    /// When the leases end, by the clock of this process: measured from before they were renewed.
    until: Option<Instant>,
    generation: u64,
}

#[derive(Debug)]
struct Lane {
    /// It is leased. Otherwise it is kept until the calls that were cancelled have ended.
    held: bool,
    /// It is given back as soon as nothing of it is being published.
    leaving: bool,
    generation: u64,
    publishing: usize,
    /// Calls of an earlier lease that have not ended.
    cancelled: usize,
    stop: CancellationToken,
}

/// The right to publish one message of a lane.
#[derive(Debug, Clone)]
pub(super) struct Permit {
    pub(super) lane: u8,
    generation: u64,
    /// Cancelled when the lane is lost.
    pub(super) stop: CancellationToken,
}

impl Lanes {
    /// Records a renewal that was begun at this time. Returns the lanes that are lost.
    pub(super) fn renewed(&mut self, began: Instant, lease: Duration, held: &[u8]) -> BTreeSet<u8> {
        self.until = began.checked_add(lease);
        let lost = self.held().filter(|lane| !held.contains(lane)).collect();
        self.lose(&lost);
        // Held under the token although this relay had given them up when it was too late to renew.
        self.taken(held);
        lost
    }

    /// Adds lanes that were leased. Returns those that are new.
    pub(super) fn taken(&mut self, lanes: &[u8]) -> Vec<u8> {
        let mut new = Vec::new();
        for lane in lanes {
            if self.lanes.get(lane).is_some_and(|lane| lane.held) {
                continue;
            }
            self.generation += 1;
            let generation = self.generation;
            let cancelled = self.lanes.get(lane).map_or(0, |lane| lane.cancelled);
            let stop = CancellationToken::new();
            self.lanes.insert(*lane, Lane { held: true, leaving: false, generation, publishing: 0, cancelled, stop });
            new.push(*lane);
        }
        new
    }

    /// Cancels what is being published in these lanes.
    pub(super) fn lose(&mut self, lost: &BTreeSet<u8>) {
        for lane in lost {
            if let Some(lane) = self.lanes.get_mut(lane) {
                lane.stop.cancel();
                lane.held = false;
                lane.cancelled += std::mem::take(&mut lane.publishing);
            }
        }
        self.lanes.retain(|_, lane| lane.held || lane.cancelled > 0);
    }

    /// The lanes that are leased.
    pub(super) fn held(&self) -> impl Iterator<Item = u8> {
        self.lanes.iter().filter(|(_, lane)| lane.held).map(|(number, _)| *number)
    }

    /// The lanes of which messages may be read.
    pub(super) fn readable(&self) -> Vec<u8> {
        let readable = |lane: &Lane| lane.held && !lane.leaving && lane.cancelled == 0;
        self.lanes.iter().filter(|(_, lane)| readable(lane)).map(|(number, _)| *number).collect()
    }

    /// Returns whether so much is left of the leases that a message may be published.
    pub(super) fn are_safe(&self, now: Instant, lease: Duration) -> bool {
        self.until.is_some_and(|until| now + lease / 3 < until)
    }

    /// When the leases end.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Forgets when the leases end, because they have.
    pub(super) fn expire(&mut self) {
        self.until = None;
    }

    /// Begins to publish a message of a lane; `None` if the lane is not held, or is about to be given back.
    pub(super) fn publish(&mut self, number: u8) -> Option<Permit> {
        let lane = self.lanes.get_mut(&number).filter(|lane| lane.held && !lane.leaving)?;
        lane.publishing += 1;
        Some(Permit { lane: number, generation: lane.generation, stop: lane.stop.clone() })
    }

    /// Records that a call has ended. Returns whether its lane has been held all the time.
    pub(super) fn published(&mut self, permit: &Permit) -> bool {
        let Some(lane) = self.lanes.get_mut(&permit.lane) else { return false };
        let same = lane.held && lane.generation == permit.generation;
        match same {
            true => lane.publishing = lane.publishing.saturating_sub(1),
            false => lane.cancelled = lane.cancelled.saturating_sub(1),
        }
        self.lanes.retain(|_, lane| lane.held || lane.cancelled > 0);
        same
    }

    /// Marks as many lanes as there are more than a fair share. Returns the marked ones.
    pub(super) fn leave(&mut self, share: usize) -> BTreeSet<u8> {
        let staying: Vec<u8> =
            self.lanes.iter().filter(|(_, lane)| lane.held && !lane.leaving).map(|(number, _)| *number).collect();
        let excess = staying.len().saturating_sub(share);
        let leaving: BTreeSet<u8> = staying.into_iter().rev().take(excess).collect();
        for lane in &leaving {
            if let Some(lane) = self.lanes.get_mut(lane) {
                lane.leaving = true;
            }
        }
        leaving
    }

    /// Forgets lanes that were given back.
    pub(super) fn given(&mut self, lanes: &BTreeSet<u8>) {
        self.lanes.retain(|number, _| !lanes.contains(number));
    }

    /// The marked lanes of which nothing is being published.
    pub(super) fn left(&self) -> BTreeSet<u8> {
        let left = |lane: &Lane| lane.held && lane.leaving && lane.publishing + lane.cancelled == 0;
        self.lanes.iter().filter(|(_, lane)| left(lane)).map(|(number, _)| *number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(9);

    #[tokio::test]
    async fn nothing_is_published_in_the_last_third_of_a_lease() {
        let now = Instant::now();
        let mut lanes = Lanes::default();
        assert!(!lanes.are_safe(now, LEASE));
        lanes.renewed(now, LEASE, &[1]);
        assert!(lanes.are_safe(now + Duration::from_millis(5999), LEASE));
        assert!(!lanes.are_safe(now + Duration::from_secs(6), LEASE));
    }

    #[tokio::test]
    async fn a_lane_that_was_lost_is_read_again_only_after_its_calls_have_ended() {
        let now = Instant::now();
        let mut lanes = Lanes::default();
        lanes.renewed(now, LEASE, &[]);
        assert_eq!(lanes.taken(&[1, 2]), [1, 2]);
        let permit = lanes.publish(1).unwrap();
        assert_eq!(lanes.renewed(now, LEASE, &[2]), BTreeSet::from([1]));
        assert!(permit.stop.is_cancelled());
        lanes.taken(&[1]);
        assert_eq!(lanes.readable(), [2]);
        assert!(!lanes.published(&permit), "its result says nothing any more");
        assert_eq!(lanes.readable(), [1, 2]);
        let permit = lanes.publish(1).unwrap();
        assert!(lanes.published(&permit));
    }

    #[tokio::test]
    async fn what_is_more_than_a_fair_share_is_given_back_when_it_is_idle() {
        let now = Instant::now();
        let mut lanes = Lanes::default();
        lanes.renewed(now, LEASE, &[1, 2, 3]);
        let permit = lanes.publish(3).unwrap();
        assert_eq!(lanes.leave(1), BTreeSet::from([2, 3]));
        assert!(lanes.leave(1).is_empty() && lanes.publish(2).is_none());
        assert_eq!((lanes.left(), lanes.readable()), (BTreeSet::from([2]), vec![1]));
        assert!(lanes.published(&permit));
        assert_eq!(lanes.left(), BTreeSet::from([2, 3]));
    }
}
