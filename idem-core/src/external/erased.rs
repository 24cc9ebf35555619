//! A call without its types, and how a test runs it.

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::pin::Pin;
use std::time::Duration;

use crate::store::{CallAnswer, Row};
use crate::{BoxError, Extraction};

use super::call::CallError;

/// A call that was begun.
pub(crate) type Calling = Pin<Box<dyn Future<Output = Result<CallReply, CallError>> + Send>>;

/// The reply of a call, or of the question what became of one.
#[derive(Debug)]
pub enum CallReply {
    /// The answer, as JSON, or why it has no JSON form.
    Answer(Result<CallAnswer, serde_json::Error>),
    /// No call had an effect.
    NotThere,
    /// It cannot be known.
    Unknown,
}

/// How long a call may take, how it is repeated, and what its parameters do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallLimits {
    pub(crate) name: &'static str,
    pub(crate) timeout: Duration,
    /// `None`: the provider knows no keys.
    pub(crate) key_life: Option<Duration>,
    pub(crate) reconciles: bool,
    /// How long after the last call under a key can have begun the provider is asked about it, at the earliest.
    pub(crate) ask_after: Duration,
    /// Whether a parameter needs a transaction.
    pub(crate) writes: bool,
    /// Whether a parameter is the key, or contains it.
    pub(crate) takes_key: bool,
}

/// A call, for a worker with the state `S`.
#[derive(Debug)]
pub struct ErasedCall<S> {
    pub(crate) limits: CallLimits,
    /// The type of the message that it takes.
    pub(crate) message: TypeId,
    pub(crate) begin: Begin<S>,
    /// Runs the call, or the question. It is the identity, except in tests.
    pub(crate) tap: fn(Calling) -> Calling,
}

/// Extracts the parameters, and begins the call, or, with `true`, the question what became of it.
type Begin<S> = fn(Box<dyn Any + Send>, &Extraction<'_, S>, bool) -> Result<Calling, BoxError>;

impl<S> ErasedCall<S> {
    /// Returns this call, run by a tap.
    pub fn tapped(self, tap: fn(Calling) -> Calling) -> Self {
        Self { tap, ..self }
    }

    /// Returns how long after the fetch for a call without a key the provider is asked about it, at the earliest;
    /// `None` if the call has a key, or nobody can be asked.
    pub fn asks_after(&self) -> Option<Duration> {
        let asks = self.limits.key_life.is_none() && self.limits.reconciles;
        asks.then(|| self.limits.last_use().saturating_add(self.limits.ask_after))
    }
}

/// The lease of a row for a call is this much longer than the timeout: the call waits until it is sent, and travels
/// after the timeout.
const MARGIN: Duration = Duration::from_secs(10);

/// The end of a lease in which nothing is sent: what was sent before has arrived when the lease ends.
const QUIET: Duration = Duration::from_secs(5);

/// The ending of the name of a call whose provider knows no keys, in a row.
pub(crate) const AT_MOST_ONCE: &str = " (at most once)";

impl CallLimits {
    /// Returns the name under which rows keep this call. One that sends a key is another call than one of the same name that
    /// sends none: the provider has not seen the key of a row that was called for without it.
    pub(crate) fn kept_name(&self) -> Cow<'static, str> {
        match self.key_life {
            Some(_) => Cow::Borrowed(self.name),
            None => Cow::Owned(format!("{}{AT_MOST_ONCE}", self.name)),
        }
    }

    /// Returns whether this call may go on with a row: no call has begun, or it has. An answer is read alike with and without
    /// a key.
    pub(crate) fn is_of(&self, row: &Row) -> bool {
        let Some(begun) = row.call_name.as_deref() else { return true };
        match row.answer {
            Some(_) => without_kind(begun) == self.name,
            None => *begun == *self.kept_name(),
        }
    }

    /// The lease of a row for a call. No request of it is on its way after that, unless the network holds it for longer
    /// than [`QUIET`].
    pub(crate) fn lease(&self) -> Duration {
        self.timeout.saturating_add(MARGIN)
    }

    /// How long after the fetch of its row a call may send.
    pub(crate) fn sends_for(&self) -> Duration {
        self.lease().saturating_sub(QUIET)
    }

    /// Returns whether a call may be sent that was first made under its key this long ago, as of the fetch of its row,
    /// or never: the provider must still know the key when it arrives, within the lease. A tenth of the key's life is
    /// left out, since clocks differ. Without a key, only the first call may be sent.
    pub(crate) fn is_usable(&self, age: Option<Duration>) -> bool {
        match self.key_life {
            Some(life) => age.unwrap_or_default().saturating_add(self.lease()) <= life / 10 * 9,
            None => age.is_none(),
        }
    }

    /// Returns how long after the first fetch of a row the last call under its key can have begun, also in a version of
    /// the service with a shorter timeout: it can begin until the end of its lease is as near as its timeout and
    /// [`QUIET`].
    pub(crate) fn last_use(&self) -> Duration {
        self.key_life.map_or(MARGIN.saturating_sub(QUIET), |life| (life / 10 * 9).saturating_sub(QUIET))
    }
}

/// Returns the name of a call that a row has kept, as the call has it.
pub(crate) fn without_kind(kept: &str) -> &str {
    kept.strip_suffix(AT_MOST_ONCE).unwrap_or(kept)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::store::{HandlerId, Identity};
    use crate::{Delivery, Fingerprint, Key};

    const HOUR: Duration = Duration::from_secs(3600);

    fn limits(key_life: Option<Duration>) -> CallLimits {
        CallLimits {
            name: "charge",
            timeout: Duration::from_secs(20),
            key_life,
            reconciles: true,
            ask_after: Duration::ZERO,
            writes: false,
            takes_key: true,
        }
    }

    #[test]
    fn a_key_is_used_until_a_call_under_it_could_come_after_nine_tenths_of_its_life() {
        let day = limits(Some(24 * HOUR));
        let last = Duration::from_secs(24 * 3600 * 9 / 10 - 30);
        assert!(day.is_usable(None) && day.is_usable(Some(last)));
        assert!(!day.is_usable(Some(last + Duration::from_millis(1))) && !day.is_usable(Some(Duration::MAX)));
        let short = limits(Some(Duration::from_secs(34)));
        assert!(short.is_usable(None) && !short.is_usable(Some(Duration::from_secs(1))));
        assert!(!limits(Some(Duration::from_secs(33))).is_usable(None));
    }

    #[test]
    fn a_call_without_a_key_is_not_repeated() {
        assert!(limits(None).is_usable(None));
        assert!(!limits(None).is_usable(Some(Duration::ZERO)), "it has begun, however short ago");
    }

    #[test]
    fn a_call_with_a_key_goes_on_with_no_call_without_one_and_uses_its_answer() {
        let identity = Identity { handler: HandlerId(1), key: Key::empty(), fingerprint: Fingerprint::none() };
        let delivery = Delivery::new("orders", "");
        let mut row = Row::new(7, identity, String::new(), delivery, SystemTime::UNIX_EPOCH);
        let (keyed, at_most_once) = (limits(Some(HOUR)), limits(None));
        let is_of = |row: &Row| (keyed.is_of(row), at_most_once.is_of(row));
        assert_eq!(is_of(&row), (true, true));
        let kept = [("charge", (true, false)), ("charge (at most once)", (false, true)), ("mail", (false, false))];
        for (name, expected) in kept {
            row.call_name = Some(name.to_owned());
            assert_eq!(is_of(&row), expected, "{name}");
        }
        row.answer = Some(CallAnswer::new("{}"));
        for (name, expected) in [("charge", true), ("charge (at most once)", true), ("mail", false)] {
            row.call_name = Some(name.to_owned());
            assert_eq!(is_of(&row), (expected, expected), "{name}");
        }
    }
}
