//! When to pull: a request costs the server about as much for one message as for many.

use std::time::Duration;

use tokio::time::Instant;

/// How long the first free slot waits for others. Meanwhile the worker has more than seven eighths of what it may have. By
/// default that is at least one delivery for each lane, unless some are held. A worker that may have only as many as it
/// processes at once lacks less than an eighth of them for this time: from a consumer with a limit, or with `.prefetch(..)`
/// of that many, some lanes are idle. With `.inbox()`, which has no lanes, fewer are stored together.
const GATHER: Duration = Duration::from_millis(1);

/// Gathers free slots until a pull is worth its cost: an eighth of all, or what is free after a moment. Their number alone
/// must not decide, since deliveries that are held may fill all other slots for any time.
#[derive(Default)]
pub(crate) struct Gather {
    /// When the first of the free slots was seen.
    since: Option<Instant>,
}

impl Gather {
    /// Returns whether to pull for so many free slots, out of so many.
    pub(crate) fn is_worth(&mut self, free: usize, all: usize, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        free >= all.div_ceil(8) || now >= since + GATHER
    }

    /// Returns when to ask again, if slots are being gathered.
    pub(crate) fn due(&self) -> Option<Instant> {
        Some(self.since? + GATHER)
    }

    /// Begins anew: no slot is free, or a pull is waiting.
    pub(crate) fn restart(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_is_pulled_at_once_and_less_after_a_moment() {
        let (mut gather, now) = (Gather::default(), Instant::now());
        assert!(gather.is_worth(20, 20, now) && gather.is_worth(3, 20, now));
        gather.restart();
        let later = now + GATHER / 2;
        assert!(!gather.is_worth(1, 20, now) && !gather.is_worth(2, 20, later));
        assert!(gather.is_worth(3, 20, later));
        assert_eq!(gather.due(), Some(now + GATHER), "from the first slot on");
        assert!(gather.is_worth(1, 20, now + GATHER), "all others may be held");
        gather.restart();
        assert_eq!(gather.due(), None);
        assert!(!gather.is_worth(1, 20, now + GATHER));
    }

    #[test]
    fn a_worker_of_few_messages_gathers_none() {
        for all in 1..=8 {
            assert!(Gather::default().is_worth(1, all, Instant::now()), "{all}");
        }
    }
}
