//! The database's clock, as far as prune believes it.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// When the database's clock was last read, and its time since 1970. The first reading is believed.
///
/// A clock that jumps forward by more than the retention would make every claim old at once. A process that starts in the
/// meantime cannot tell.
#[derive(Debug, Default)]
pub(crate) struct Clock(Mutex<Option<(Instant, Duration)>>);

impl Clock {
    /// Returns by how much the clock, which was asked at `asked` and has answered `now`, is ahead of the time that has passed
    /// here since the last call, and a twentieth: so a clock that was behind is believed again after a while.
    pub(crate) fn ahead(&self, asked: Instant, now: Duration) -> Duration {
        let mut last = self.0.lock();
        let believed = last.map_or(now, |(at, time)| {
            let passed = at.elapsed();
            now.min(time.saturating_add(passed + passed / 20))
        });
        *last = Some((asked, believed));
        now - believed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_believed_for_as_much_as_has_passed_here_and_a_twentieth() {
        let (clock, minute, day) = (Clock::default(), Duration::from_secs(60), Duration::from_secs(86_400));
        let (first, began) = (day * 20_000, Instant::now());
        // As if it had been asked that long ago.
        let ahead = |now| {
            let ahead = clock.ahead(began.checked_sub(minute * 20).unwrap_or(began), now);
            Duration::from_secs(ahead.as_secs_f64().round() as u64)
        };
        assert_eq!(ahead(first), Duration::ZERO, "nothing to compare it with");
        assert_eq!(ahead(first + minute * 20), Duration::ZERO);
        assert_eq!(ahead(first + minute * 40 + day * 8), day * 8 - minute);
        assert_eq!(ahead(first + minute * 60), Duration::ZERO, "it is right again");
        assert_eq!(ahead(first), Duration::ZERO, "it was set back");
    }
}
