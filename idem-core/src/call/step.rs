//! What follows for a row that was fetched for its call.

use std::time::Duration;

use crate::Reason;
use crate::external::CallLimits;

/// How often a call may begin without a result before its message is a dead letter, `crashed`. More are allowed than starts of
/// a handler, because calls run concurrently, and most processes that end during a call end for a deployment.
const MAX_CALLS: u32 = 10;

/// What follows for a row that was fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Call,
    /// Ask the provider what became of the calls under this key.
    Ask,
    /// Ask the provider after this time.
    Wait(Duration),
    /// There is no time left in the lease: a call could still be under way when another worker begins one.
    Snooze,
    Dead(Reason),
}

/// Decides about a row whose call has now begun `calls` times without a result, which was first called under its key this
/// long ago, or never, and was fetched `waited` ago.
pub(super) fn next(limits: &CallLimits, calls: u32, age: Option<Duration>, waited: Duration) -> Step {
    if calls > MAX_CALLS {
        return Step::Dead(Reason::Crashed);
    }
    if waited.saturating_add(limits.timeout) > limits.sends_for() {
        return Step::Snooze;
    }
    match (limits.is_usable(age), limits.reconciles) {
        (true, _) => Step::Call,
        (false, true) => {
            let wait = limits.last_use().saturating_add(limits.ask_after).saturating_sub(age.unwrap_or_default());
            if wait.is_zero() { Step::Ask } else { Step::Wait(wait) }
        }
        (false, false) => Step::Dead(Reason::Unresolved),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const NOW: Duration = Duration::ZERO;

    fn limits(key_life: Option<Duration>, reconciles: bool) -> CallLimits {
        let (timeout, ask_after) = (20 * SECOND, 50 * SECOND);
        CallLimits { name: "charge", timeout, key_life, reconciles, ask_after, writes: false, takes_key: true }
    }

    #[test]
    fn a_row_is_called_while_its_key_is_known_and_asked_about_after_that() {
        let (keyed, mail) = (limits(Some(100 * SECOND), true), limits(None, true));
        let table = [
            (keyed, 1, None, NOW, Step::Call),
            (keyed, 10, Some(60 * SECOND), 5 * SECOND, Step::Call),
            // A call that began a second ago may still be on its way.
            (keyed, 1, Some(61 * SECOND), NOW, Step::Wait(74 * SECOND)),
            // One of a version with a shorter timeout can have begun 85 seconds after the first one.
            (keyed, 1, Some(134 * SECOND), NOW, Step::Wait(SECOND)),
            (keyed, 1, Some(135 * SECOND), NOW, Step::Ask),
            (keyed, 1, Some(Duration::MAX), NOW, Step::Ask),
            (keyed, 1, None, 6 * SECOND, Step::Snooze),
            (keyed, 1, Some(61 * SECOND), 6 * SECOND, Step::Snooze),
            (keyed, 11, Some(NOW), NOW, Step::Dead(Reason::Crashed)),
            (mail, 1, None, NOW, Step::Call),
            // It can have begun five seconds after its fetch.
            (mail, 1, Some(NOW), NOW, Step::Wait(55 * SECOND)),
            (mail, 1, Some(54 * SECOND), NOW, Step::Wait(SECOND)),
            (mail, 1, Some(55 * SECOND), NOW, Step::Ask),
            (limits(Some(100 * SECOND), false), 1, Some(61 * SECOND), NOW, Step::Dead(Reason::Unresolved)),
            (limits(None, false), 1, Some(NOW), NOW, Step::Dead(Reason::Unresolved)),
        ];
        for (limits, calls, age, waited, expected) in table {
            assert_eq!(next(&limits, calls, age, waited), expected, "{limits:?} {calls} {age:?} {waited:?}");
        }
    }
}
