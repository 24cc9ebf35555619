//! Inbox rows in their call phase: taken, called, and with an answer.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::{Error, Reason};

use super::{CallAnswer, HandlerId, Row, StoreError, Transactions};

/// The inbox rows whose handlers make an external call first. Until such a row has an answer it is in its call phase, in
/// which no method of [`InboxRows`](super::InboxRows) takes it or judges it. With its answer it is an ordinary row, whose
/// run completes the message.
///
/// Each method is one committed statement or transaction.
pub trait CallRows: Transactions {
    /// Takes at most `limit` due rows of these callers, the oldest first: sets the token, a lease, and, where the row has none,
    /// a key and the time and name of the first call; and counts a call that begins. A row whose time it has set has
    /// [`is_first_call`](Row::is_first_call), also if it is read again by the token: a store keeps the token that has set it.
    /// Rows that another transaction has locked are skipped. The rows tell how long they had been due ([`waited`](Row::waited)).
    ///
    /// `since`: only rows that became due within this time, if that makes the search faster; `None`: all due rows.
    fn take_calls(
        &self,
        callers: &[Caller],
        limit: usize,
        since: Option<Duration>,
        token: Uuid,
    ) -> impl Future<Output = Result<TakenCalls, StoreError>> + Send;

    /// Records the result of a call, and clears the token. `false` if the row no longer has this token: another worker may
    /// have called meanwhile, under the same key. An answer is recorded also then, as long as the row is in its call phase and
    /// has the same key.
    fn record_call(&self, row: &Row, result: &CallResult) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Dates the call of a row anew, since the provider knows of none under its key: the time of the first call is now, and the
    /// lease begins again. The key stays. The row then has [`is_first_call`](Row::is_first_call) for its token. Returns when the
    /// store had its connection, as [`TakenCalls::since`]; `None` if the row no longer has this token: nothing must be sent.
    fn date_call(&self, row: &Row, lease: Duration)
    -> impl Future<Output = Result<Option<Instant>, StoreError>> + Send;

    /// Makes rows of these handlers, which make no call, ordinary ones if no call of theirs has begun: another version of the
    /// service has stored them. At most [`RELEASED_AT_ONCE`] of them, and none that another transaction has locked. Also
    /// counts those whose call may have begun, which stay as they are.
    fn release_calls(&self, handlers: &[HandlerId]) -> impl Future<Output = Result<LeftCalls, StoreError>> + Send;

    /// Returns the namespace of the calls of a registered handler: a random value, which is stored when it is first asked for,
    /// and never changes. It ends with the registration of the handler, and no other handler ever has it. The first keys of
    /// messages are derived from it, so it has to be part of every backup. Called at the start of a worker, for each handler
    /// that makes an external call.
    ///
    /// # Errors
    /// [`Error::Config`] if the store keeps no namespaces; the text names the fix.
    /// [`Error::Database`] if the database cannot be used, or does not have this handler.
    fn call_namespace(&self, _handler: HandlerId) -> impl Future<Output = Result<Uuid, Error>> + Send {
        async {
            let why = "this store keeps no namespaces of external calls, and a handler makes one: use a store that implements \
                       `CallRows::call_namespace`";
            Err(Error::Config(why.to_owned()))
        }
    }
}

/// The rows of a take.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TakenCalls {
    /// The rows that were taken.
    pub rows: Vec<Row>,
    /// When the store had its connection, or was the writer, and had not yet sent the statement by which the database dates the
    /// leases: none of them began before. A call has to be sent within a part of its lease, and counts from here, so that it
    /// loses nothing by a wait for the connection.
    pub since: Instant,
}

impl TakenCalls {
    /// The rows of a take that had its connection at this time.
    pub fn new(rows: Vec<Row>, since: Instant) -> Self {
        Self { rows, since }
    }
}

/// How many rows become ordinary ones in one statement.
pub const RELEASED_AT_ONCE: u32 = 1000;

/// Rows in their call phase whose handlers make no call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftCalls {
    /// How many were made ordinary ones.
    pub released: u64,
    /// How many wait for a version of the service that makes the call, because it may have begun.
    pub in_doubt: u64,
}

impl LeftCalls {
    /// So many rows of each kind.
    pub fn new(released: u64, in_doubt: u64) -> Self {
        Self { released, in_doubt }
    }
}

/// A handler that makes external calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The handler.
    pub handler: HandlerId,
    /// How long a row stays taken for a call: longer than the call can take.
    pub lease: Duration,
    /// The name of its call, which is stored with a row whose first call it is. That of one whose provider knows no keys says so.
    pub name: Cow<'static, str>,
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
    pub fn given_back(due: Duration) -> Self {
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
        Self { next, error: Some(error), is_attempt: true, ..Self::given_back(Duration::ZERO) }
    }

    /// The answer.
    pub fn answered(answer: CallAnswer) -> Self {
        Self { answer: Some(answer), ..Self::given_back(Duration::ZERO) }
    }

    /// A dead row, without one more attempt.
    pub fn dead(reason: Reason, error: String) -> Self {
        Self { next: Err(reason), error: Some(error), ..Self::given_back(Duration::ZERO) }
    }
}

/// What an operator decides about a dead row whose handler makes an external call, after a look at the provider.
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

/// Returns how long ago the first call under the key of a row began, as of its take; `None` if the first one is about to
/// begin. If the clock of the database has gone back since, the key counts as older than any other: nothing is known of it.
pub(crate) fn called_for(row: &Row, lease: Duration) -> Option<Duration> {
    if row.is_first_call {
        return None;
    }
    let times = row.locked_until.and_then(|end| end.checked_sub(lease)).zip(row.called_at);
    let age = times.and_then(|(taken, called_at)| taken.duration_since(called_at).ok());
    Some(age.unwrap_or(Duration::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::store::Identity;
    use crate::{Delivery, Fingerprint, Key};

    const SECOND: Duration = Duration::from_secs(1);
    const TAKEN: Duration = Duration::from_secs(1_000_000);

    /// How old the key of a row is that was first called at this time.
    fn age(called_at: Option<Duration>, is_first_call: bool) -> Option<Duration> {
        let identity = Identity { handler: HandlerId(1), key: Key::empty(), fingerprint: Fingerprint::none() };
        let time = |since| SystemTime::UNIX_EPOCH + since;
        let mut row = Row::new(7, identity, String::new(), Delivery::new("orders", ""), time(TAKEN));
        row.locked_until = Some(time(TAKEN + 30 * SECOND));
        (row.called_at, row.is_first_call) = (called_at.map(time), is_first_call);
        called_for(&row, 30 * SECOND)
    }

    #[test]
    fn a_call_is_the_first_only_if_its_take_says_so() {
        assert_eq!(age(Some(TAKEN), true), None);
        assert_eq!(age(Some(TAKEN), false), Some(Duration::ZERO), "it has ended, and was replayed at once");
        assert_eq!(age(Some(TAKEN - 5 * SECOND), false), Some(5 * SECOND));
    }

    #[test]
    fn a_clock_that_went_back_makes_no_key_young() {
        assert_eq!(age(Some(TAKEN + SECOND), false), Some(Duration::MAX));
        assert_eq!(age(None, false), Some(Duration::MAX));
    }
}
