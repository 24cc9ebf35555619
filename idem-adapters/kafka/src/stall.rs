//! Whether a partition has stalled, and when it is tried again.

use std::time::{Duration, Instant};

/// The delay before the first retry. Each further one that fails doubles it.
const FIRST: Duration = Duration::from_secs(1);

/// The longest delay between two retries.
const LONGEST: Duration = Duration::from_secs(60);

/// Why a partition has stalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// No broker leads it. The client continues by itself once one does.
    NoLeader,
    /// A broker has answered with an error that may pass. It is tried again where it stopped.
    Failing,
    /// The records at the group's offset cannot be read. The partition continues only after an operator has intervened
    /// and it was assigned again.
    Stuck,
}

/// The state of one assigned partition.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    cause: Option<Cause>,
    /// How often it has failed since the last record.
    failures: u32,
    /// When it is tried again.
    due: Option<Instant>,
}

impl Stall {
    pub(crate) fn cause(&self) -> Option<Cause> {
        self.cause
    }

    /// Whether records may be received.
    pub(crate) fn receives(&self) -> bool {
        matches!(self.cause, None | Some(Cause::NoLeader))
    }

    /// Stalls the partition. Returns `false` if nothing has changed: a stuck partition remains stuck.
    pub(crate) fn begin(&mut self, cause: Cause, now: Instant) -> bool {
        if self.cause == Some(cause) || self.cause == Some(Cause::Stuck) {
            return false;
        }
        (self.cause, self.due) = (Some(cause), None);
        if cause == Cause::Failing {
            self.postpone(now);
        }
        true
    }

    /// Notes whether a broker leads the partition. Returns `false` if nothing has changed, or if it has stalled for
    /// another reason.
    pub(crate) fn lead(&mut self, leads: bool) -> bool {
        let cause = (!leads).then_some(Cause::NoLeader);
        if !self.receives() || self.cause == cause {
            return false;
        }
        self.cause = cause;
        true
    }

    /// Whether the partition is to be tried again.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Schedules the next retry.
    pub(crate) fn postpone(&mut self, now: Instant) {
        let delay = FIRST.saturating_mul(2_u32.saturating_pow(self.failures)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        self.due = Some(now + delay);
    }

    /// Lets the partition go on. If it fails again before a record arrives, the next retry takes longer.
    pub(crate) fn end(&mut self) {
        (self.cause, self.due) = (None, None);
    }

    /// Handles a received record, which may also be one from before the partition stalled.
    pub(crate) fn receive(&mut self) {
        if self.receives() {
            self.failures = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_failing_partition_is_retried_at_growing_intervals_until_a_record_comes() {
        let (mut stall, mut now) = (Stall::default(), Instant::now());
        for delay in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert!(stall.begin(Cause::Failing, now) && !stall.receives());
            stall.receive();
            assert!(!stall.begin(Cause::Failing, now), "it has stalled already");
            assert!(!stall.is_due(now + seconds(delay) - Duration::from_millis(1)));
            now += seconds(delay);
            assert!(stall.is_due(now));
            stall.end();
            assert!(stall.receives() && !stall.is_due(now + LONGEST));
        }
        stall.receive();
        assert!(stall.begin(Cause::Failing, now) && stall.is_due(now + FIRST));
    }

    #[test]
    fn a_stuck_partition_is_not_tried_again() {
        let (mut stall, now) = (Stall::default(), Instant::now());
        assert!(stall.begin(Cause::Failing, now) && stall.begin(Cause::Stuck, now));
        assert!(!stall.begin(Cause::Failing, now) && !stall.lead(false) && !stall.lead(true));
        assert!(!stall.is_due(now + 2 * LONGEST) && !stall.receives());
    }

    #[test]
    fn a_partition_without_a_leader_goes_on_when_it_has_one() {
        let (mut stall, now) = (Stall::default(), Instant::now());
        assert!(stall.lead(false) && !stall.lead(false) && stall.receives());
        assert!(!stall.is_due(now + LONGEST) && stall.lead(true) && !stall.lead(true));
        assert!(stall.lead(false) && stall.begin(Cause::Failing, now), "its leader may come back with an error");
    }
}
