//! The pace at which old claims are looked for.
//!
//! No index has the dates of the claims: it would take a seventh of the throughput of single messages. Instead, prune
//! walks the whole table, in the order in which it is stored, and remembers its place.

use std::time::Duration;

/// How many rounds prune makes within the shortest retention. A claim is therefore kept for up to a twentieth longer.
const ROUNDS: f64 = 20.0;

/// A table to walk. All sizes have one unit, blocks or rows.
pub(crate) struct Walk {
    pub(crate) size: u64,
    /// A table up to this size is walked as a whole, whenever prune is called.
    pub(crate) small: u64,
    /// The size of one step, which is the least that a call walks.
    pub(crate) step: u64,
}

impl Walk {
    /// How much one call walks, this long after the walk was last continued. It does not depend on the number of workers
    /// that call.
    pub(crate) fn share(&self, since: Duration, retention: Duration) -> u64 {
        if self.size <= self.small {
            return self.size;
        }
        let share = since.as_secs_f64() * ROUNDS / retention.as_secs_f64().max(0.001);
        ((self.size as f64 * share) as u64).clamp(self.step, self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_round_takes_a_twentieth_of_the_retention() {
        let walk = Walk { size: 2_000_000, small: 2048, step: 64 };
        let (mut walked, mut minutes) = (0, 0);
        while walked < walk.size {
            walked += walk.share(MINUTE, 20 * DAY);
            minutes += 1;
        }
        assert!((1435..1445).contains(&minutes), "{minutes}");
        assert_eq!(walk.share(30 * DAY, DAY), walk.size, "at most one round");
        assert_eq!([walk.share(Duration::ZERO, DAY), walk.share(MINUTE, Duration::ZERO)], [64, walk.size]);
    }

    #[test]
    fn a_small_table_is_walked_at_once() {
        for size in [0, 1, 2048] {
            assert_eq!(Walk { size, small: 2048, step: 64 }.share(Duration::ZERO, 9000 * DAY), size);
        }
    }
}
