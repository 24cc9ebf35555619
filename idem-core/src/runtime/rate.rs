//! How often something is done at most.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// When something was last done that is done at most once in a while.
#[derive(Debug, Default)]
pub(crate) struct Rate(Mutex<Option<Instant>>);

impl Rate {
    /// Returns whether this time has passed since the last call that returned `true`.
    pub(crate) fn allows(&self, pause: Duration) -> bool {
        let mut last = self.0.lock();
        let allows = last.is_none_or(|last| last.elapsed() >= pause);
        if allows {
            *last = Some(Instant::now());
        }
        allows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_is_done_again_after_the_pause() {
        let rate = Rate::default();
        let hour = Duration::from_secs(3600);
        assert!(rate.allows(hour) && !rate.allows(hour));
        assert!(rate.allows(Duration::ZERO));
    }
}
