//! The brake, which pauses consumption when too many messages of a queue become dead letters.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::{Outcome, Reason};

use super::health::Health;

/// Pauses consumption if too many of the last deliveries had no handler, no key or no readable payload, and none of the
/// others was processed or stored. In that case the worker's configuration is wrong, not the messages.
pub(crate) struct Brake {
    /// The number of unfit deliveries, and the size of the window. `None` disables the limit.
    limit: Option<(usize, usize)>,
    last: Mutex<VecDeque<Seen>>,
    health: Health,
}

/// The kind of a delivery in the window.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Unfit,
    Processed,
    /// A duplicate or a failure, which says nothing about the configuration.
    Other,
}

impl Brake {
    pub(crate) fn new(limit: Option<(usize, usize)>, health: Health) -> Self {
        Self { limit, last: Mutex::default(), health }
    }

    /// Returns whether an unfit delivery must be held now instead of becoming a dead letter.
    pub(crate) fn holds(&self, reason: Reason) -> bool {
        counts(reason) && self.health.paused().is_some()
    }

    /// Records a delivery that became a dead letter because it was unfit.
    pub(crate) fn unfit(&self, reason: Reason, error: &str) {
        let Some((limit, of)) = self.limit else { return };
        if !counts(reason) {
            return self.see(Seen::Other);
        }
        self.see(Seen::Unfit);
        let mut last = self.last.lock();
        let unfits = last.iter().filter(|seen| **seen == Seen::Unfit).count();
        if unfits < limit || last.contains(&Seen::Processed) {
            return;
        }
        // After a resume the window starts empty.
        last.clear();
        drop(last);
        let why = format!(
            "{unfits} of the last {of} deliveries became dead letters because no handler could be called for them, and \
             none was processed or stored. The last one: {reason}, {error}. Check that event types, the `.event_type(..)` \
             header, keys and codec match the producers' messages; the dead letters are in the inbox. Consumption resumes \
             after `Health::resume` or a restart; `.unfit_limit(..)` sets the limit"
        );
        tracing::error!(why, "consumption pauses");
        self.health.pause(why);
    }

    /// Records a delivery with another outcome.
    pub(crate) fn fit(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Processed => self.see(Seen::Processed),
            stored if stored.is_stored() => self.see(Seen::Processed),
            // Already counted by `unfit`.
            Outcome::Dead { reason } if counts(*reason) || *reason == Reason::TooLarge => {}
            _ => self.see(Seen::Other),
        }
    }

    fn see(&self, seen: Seen) {
        let Some((_, of)) = self.limit else { return };
        let mut last = self.last.lock();
        last.push_back(seen);
        if last.len() > of {
            last.pop_front();
        }
    }
}

/// Returns whether this reason indicates a wrong configuration.
fn counts(reason: Reason) -> bool {
    matches!(reason, Reason::NoKey | Reason::UnknownType | Reason::Undecodable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brake(limit: usize, of: usize) -> (Brake, Health) {
        let health = Health::new();
        (Brake::new(Some((limit, of)), health.clone()), health)
    }

    fn unfit(brake: &Brake) {
        brake.unfit(Reason::NoKey, "no header");
    }

    #[test]
    fn a_share_of_unfit_deliveries_pauses_and_says_why() {
        let (brake, health) = brake(3, 5);
        for outcome in [Outcome::Duplicate, Outcome::Dead { reason: Reason::Exhausted }] {
            unfit(&brake);
            assert_eq!(health.paused(), None);
            brake.fit(&outcome);
        }
        unfit(&brake);
        let why = health.paused().unwrap();
        assert!(why.contains("3 of the last 5") && why.contains("no key") && why.contains("no header"), "{why}");
        assert!(brake.holds(Reason::NoKey) && !brake.holds(Reason::TooLarge));
        health.resume();
        assert!(!brake.holds(Reason::NoKey));
        unfit(&brake);
        assert_eq!(health.paused(), None, "it counts from the start");
    }

    #[test]
    fn one_that_was_processed_among_them_keeps_it_going() {
        let (brake, health) = brake(3, 5);
        for n in 0..50 {
            unfit(&brake);
            if n % 4 == 0 {
                brake.fit(&Outcome::Processed);
            }
        }
        assert_eq!(health.paused(), None);
        (0..5).for_each(|_| unfit(&brake));
        assert!(health.paused().is_some(), "the good one is long ago");
    }

    #[test]
    fn processed_ones_that_fill_the_window_pass_out_of_it() {
        let (brake, health) = brake(3, 5);
        (0..50).for_each(|_| brake.fit(&Outcome::Processed));
        (0..4).for_each(|_| unfit(&brake));
        assert_eq!(health.paused(), None, "one of the last five was processed");
        brake.fit(&Outcome::Processed);
        (0..4).for_each(|_| unfit(&brake));
        assert_eq!(health.paused(), None, "another one was");
        unfit(&brake);
        assert!(health.paused().is_some());
    }
}
