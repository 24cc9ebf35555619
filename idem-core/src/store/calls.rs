//! External calls: their answers and results, and what an operator decides about them.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::Reason;

use super::Row;

/// The answer of an external call, as JSON. Its `Debug` shows only the length, because an answer may contain personal data.
#[derive(Clone, PartialEq, Eq)]
pub struct CallAnswer(Bytes);

impl CallAnswer {
    /// These bytes, which are JSON.
    pub fn new(json: impl Into<Bytes>) -> Self {
        Self(json.into())
    }

    /// Returns the JSON.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for CallAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallAnswer({} bytes)", self.0.len())
    }
}

/// How many rows become ordinary ones in one statement.
pub const RELEASED_AT_ONCE: u32 = 1000;

/// Rows in their call phase whose handlers make no call.
// Exhaustive: a store makes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftCalls {
    /// How many were made ordinary ones.
    pub released: u64,
    /// How many wait for a version of the service that makes the call, because it may have begun.
    pub in_doubt: u64,
}

/// The result of a call, for a row in its call phase. Until it is written, the call counts as one that may have had an effect.
// Exhaustive: a store that ignored a new part of it would call too often or lose an answer, so it must not compile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallResult {
    /// The answer, as JSON: the row becomes an ordinary one without failed attempts. `None`: it stays in its call phase, and a
    /// failed attempt or a reason ends the count of calls that had no result. Any other result only leaves out its own call:
    /// those before may have ended their processes.
    pub answer: Option<CallAnswer>,
    /// The time until the row is due, or the reason for which it is dead.
    pub next: Result<Duration, Reason>,
    /// The error, if there was one.
    pub error: Option<String>,
    /// Whether this is one more failed attempt.
    pub is_attempt: bool,
    /// Whether no call under the key of the row can have had an effect: the time of the first call is cleared.
    pub is_unused: bool,
    /// Whether the request may still be on its way: the row is not due before its lease has ended.
    pub in_doubt: bool,
    /// Whether it is that of a question, what became of the call, which has failed. The first one of a row begins its attempts
    /// anew: calls that an outage has used up leave none for the questions behind it.
    pub is_question: bool,
}

impl CallResult {
    /// A result that changes nothing but the token and the time at which the row is due.
    pub fn snoozed(due: Duration) -> Self {
        Self {
            answer: None,
            next: Ok(due),
            error: None,
            is_attempt: false,
            is_unused: false,
            in_doubt: false,
            is_question: false,
        }
    }

    /// A failed attempt.
    pub fn failed(next: Result<Duration, Reason>, error: String) -> Self {
        Self { next, error: Some(error), is_attempt: true, ..Self::snoozed(Duration::ZERO) }
    }

    /// The answer.
    pub fn answered(answer: CallAnswer) -> Self {
        Self { answer: Some(answer), ..Self::snoozed(Duration::ZERO) }
    }

    /// A dead row, without one more attempt.
    pub fn dead(reason: Reason, error: String) -> Self {
        Self { next: Err(reason), error: Some(error), ..Self::snoozed(Duration::ZERO) }
    }
}

/// What an operator decides about a dead row whose handler makes an external call, after a search at the provider.
///
/// ```
/// # use idem_core::store::{CallAnswer, Resolution};
/// #[derive(serde::Serialize)]
/// struct Charge { id: &'static str }
///
/// // The provider's page shows the charge. The handler completes with it, and nothing is called.
/// let resolution = Resolution::answer(&Charge { id: "ch_1" })?;
/// assert_eq!(resolution, Resolution::Answer(CallAnswer::new(r#"{"id":"ch_1"}"#)));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resolution {
    /// The call had an effect, and this is its answer, as JSON, as the function with `#[external]` would have returned it.
    Answer(CallAnswer),
    /// The call certainly had no effect, or its effect was undone: call again, under another key. A dead letter whose attempts have
    /// ended is replayed instead: that keeps the key, by which the provider recognizes the call also after a restore.
    CallAgain,
    /// Neither: delete the row. Copies of the message remain duplicates.
    Discard,
}

impl Resolution {
    /// The answer of the call.
    ///
    /// # Errors
    /// It has no JSON form.
    pub fn answer<T: serde::Serialize>(answer: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_vec(answer).map(|answer| Self::Answer(CallAnswer::new(answer)))
    }
}

/// Returns how long ago the first call under the key of a row began, as of its fetch; `None` if the first one is about
/// to begin. If the clock of the database has gone back since, the key counts as older than any other: nothing is known
/// of it.
pub(crate) fn called_for(row: &Row, lease: Duration) -> Option<Duration> {
    if row.is_first_call {
        return None;
    }
    let times = row.locked_until.and_then(|end| end.checked_sub(lease)).zip(row.called_at);
    let age = times.and_then(|(fetched, called_at)| fetched.duration_since(called_at).ok());
    Some(age.unwrap_or(Duration::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::store::{HandlerId, Identity};
    use crate::{Delivery, Fingerprint, Key};

    const SECOND: Duration = Duration::from_secs(1);
    const FETCHED: Duration = Duration::from_secs(1_000_000);

    /// How old the key of a row is that was first called at this time.
    fn age(called_at: Option<Duration>, is_first_call: bool) -> Option<Duration> {
        let identity = Identity { handler: HandlerId(1), key: Key::empty(), fingerprint: Fingerprint::none() };
        let time = |since| SystemTime::UNIX_EPOCH + since;
        let mut row = Row::new(7, identity, String::new(), Delivery::new("orders", ""), time(FETCHED));
        row.locked_until = Some(time(FETCHED + 30 * SECOND));
        (row.called_at, row.is_first_call) = (called_at.map(time), is_first_call);
        called_for(&row, 30 * SECOND)
    }

    #[test]
    fn a_call_is_the_first_only_if_its_fetch_says_so() {
        assert_eq!(age(Some(FETCHED), true), None);
        assert_eq!(age(Some(FETCHED), false), Some(Duration::ZERO), "it has ended, and was replayed at once");
        assert_eq!(age(Some(FETCHED - 5 * SECOND), false), Some(5 * SECOND));
    }

    #[test]
    fn a_clock_that_went_back_makes_no_key_young() {
        assert_eq!(age(Some(FETCHED + SECOND), false), Some(Duration::MAX));
        assert_eq!(age(None, false), Some(Duration::MAX));
    }
}
