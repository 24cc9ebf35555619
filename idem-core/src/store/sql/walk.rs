//! The pace at which old claims are looked for.
//!
//! No index has the dates of the claims: it would take a seventh of the throughput of single messages. Instead, prune
//! walks the whole table, in the order in which it is stored, and remembers its place.

use std::time::Duration;

/// How many rounds prune makes within the shortest retention. A claim is therefore kept for up to a twentieth longer.
const ROUNDS: f64 = 20.0;

/// Longer than a walk can be behind: ten years.
const ALL: Duration = Duration::from_secs(315_360_000);

/// A table to walk. All sizes have one unit, blocks or rows.
pub(crate) struct Walk {
    pub(crate) size: u64,
    /// A table up to this size is walked as a whole, whenever prune is called.
    pub(crate) small: u64,
    /// The size of one step, which is the least that a call walks.
    pub(crate) step: u64,
    /// The shortest retention.
    pub(crate) retention: Duration,
}

impl Walk {
    /// How much one call walks if the walk is this far behind.
    pub(crate) fn share(&self, behind: Duration) -> u64 {
        if self.size <= self.small {
            return self.size;
        }
        let share = self.size as f64 * behind.as_secs_f64() / self.round();
        (share as u64).clamp(self.step, self.size)
    }

    /// How much time the walk has caught up when this much was walked. The time that a walk takes, or during which nobody
    /// walks, is therefore never lost.
    pub(crate) fn worth(&self, walked: u64) -> Duration {
        if self.size <= self.small {
            return ALL;
        }
        Duration::try_from_secs_f64(self.round() * walked as f64 / self.size as f64).unwrap_or(ALL).min(ALL)
    }

    fn round(&self) -> f64 {
        (self.retention.as_secs_f64() / ROUNDS).max(0.001)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const MINUTE: Duration = Duration::from_secs(60);

    fn walk(size: u64, retention: Duration) -> Walk {
        Walk { size, small: 512, step: 64, retention }
    }

    #[test]
    fn a_round_takes_a_twentieth_of_the_retention() {
        let walk = walk(2_000_000, 20 * DAY);
        let (mut walked, mut minutes) = (0, 0);
        while walked < walk.size {
            walked += walk.share(MINUTE);
            minutes += 1;
        }
        assert!((1435..1445).contains(&minutes), "{minutes}");
        assert_eq!(walk.share(30 * DAY), walk.size, "at most one round");
        assert_eq!([walk.share(Duration::ZERO), super::tests::walk(9000, Duration::ZERO).share(MINUTE)], [64, 9000]);
    }

    #[test]
    fn a_share_is_worth_the_time_that_it_was_computed_from() {
        let walk = walk(2_000_000, 20 * DAY);
        let worth = walk.worth(walk.share(MINUTE));
        assert!(worth.abs_diff(MINUTE) < Duration::from_secs(1), "{worth:?}");
    }

    #[test]
    fn a_small_table_is_walked_at_once() {
        for size in [0, 1, 512] {
            let walk = walk(size, 9000 * DAY);
            assert_eq!((walk.share(Duration::ZERO), walk.worth(1)), (size, ALL));
        }
    }
}
