//! The pause between reads that bring nothing and visit what they leave out.

use std::time::Duration;

use tokio::time::Instant;

/// After such a read, the next one waits for so many times as long as it took.
const SELDOM: u32 = 4;

/// The longest pause. A read may also take long because it waits for a connection, or the database is slow.
const LONGEST: Duration = Duration::from_secs(5);

/// A read visits all messages of the keys that it leaves out, unless they are below the level of their lane; and the level
/// rises only if a message is found behind them. If there is none, no read in such a lane is worth its time.
#[derive(Debug, Default)]
pub(super) struct Pause {
    /// Whether the read that runs leaves out keys.
    leaves_out: bool,
    until: Option<Instant>,
}

impl Pause {
    /// When the pause ends, if there is one now.
    pub(super) fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }

    /// Records whether the read that begins leaves out keys of its lanes.
    pub(super) fn begin(&mut self, leaves_out: bool) {
        self.leaves_out = leaves_out;
    }

    /// Records that a read has ended, which began at `began`, and how many messages it brought.
    pub(super) fn end(&mut self, began: Instant, now: Instant, messages: usize) {
        if self.leaves_out {
            let pause = now.duration_since(began).saturating_mul(SELDOM).min(LONGEST);
            self.until = (messages == 0).then_some(now + pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reads_that_bring_nothing_take_a_fifth_of_the_time() {
        let (now, ms) = (Instant::now(), Duration::from_millis);
        let mut pause = Pause::default();
        pause.end(now, now + ms(10), 0);
        assert_eq!(pause.until(now + ms(10)), None, "it has left out no key");
        pause.begin(true);
        pause.end(now, now + ms(10), 1);
        assert_eq!(pause.until(now + ms(10)), None, "there may be more");
        pause.end(now, now + ms(10), 0);
        assert_eq!((pause.until(now + ms(49)), pause.until(now + ms(50))), (Some(now + ms(50)), None));
        // Of another lane, meanwhile.
        pause.begin(false);
        pause.end(now, now + ms(20), 3);
        assert_eq!(pause.until(now + ms(49)), Some(now + ms(50)));
    }

    #[tokio::test]
    async fn a_database_that_was_frozen_makes_no_long_pause() {
        let now = Instant::now();
        let mut pause = Pause { leaves_out: true, until: None };
        pause.end(now, now + Duration::from_secs(60), 0);
        assert_eq!(pause.until(now + Duration::from_secs(60)), Some(now + Duration::from_secs(65)));
    }
}
