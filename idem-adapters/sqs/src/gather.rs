//! When to receive: up to 64 KB, a receive costs the same for one message as for ten.

use std::time::Duration;

use tokio::time::Instant;

use crate::requests::ENTRIES;

/// How long the first free slot waits for others while lanes may be idle.
const HUNGRY: Duration = Duration::from_millis(10);

/// How long it waits while each lane has a delivery. Held deliveries may fill all other slots for any time, so it must end.
const FED: Duration = Duration::from_secs(1);

/// Gathers free slots until a receive is worth its price: ten of them, or what is free after a moment.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    /// When the first of the free slots was seen.
    since: Option<Instant>,
}

impl Gather {
    /// Returns when to receive, for so many unsettled deliveries. `most` is how many there may be, and with `least` each lane
    /// has one. `None`: no slot is free.
    pub(crate) fn due(&mut self, unsettled: usize, least: usize, most: usize, now: Instant) -> Option<Instant> {
        let free = most.saturating_sub(unsettled);
        if free == 0 {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        if free >= ENTRIES.min(most) {
            return Some(now);
        }
        Some(since + if unsettled < least { HUNGRY } else { FED })
    }

    /// Begins anew: a receive was sent.
    pub(crate) fn restart(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_slots_are_filled_at_once_and_fewer_after_a_time() {
        let (mut gather, now) = (Gather::default(), Instant::now());
        assert_eq!(gather.due(30, 10, 30, now), None);
        assert_eq!(gather.due(20, 10, 30, now), Some(now));
        assert_eq!(gather.due(21, 10, 30, now), Some(now + FED), "each lane has one");
        assert_eq!(gather.due(21, 25, 30, now + HUNGRY / 2), Some(now + HUNGRY), "from the first slot on");
        gather.restart();
        assert_eq!(gather.due(21, 25, 30, now + HUNGRY), Some(now + HUNGRY * 2));
    }

    #[test]
    fn a_worker_of_few_messages_fills_all_its_slots_at_once() {
        let now = Instant::now();
        assert_eq!(Gather::default().due(0, 4, 4, now), Some(now));
        assert_eq!(Gather::default().due(3, 4, 4, now), Some(now + HUNGRY));
    }
}
