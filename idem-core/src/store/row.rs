//! Inbox rows, and the results of their runs.

use std::time::{Duration, SystemTime};

use uuid::Uuid;

use crate::{Delivery, Reason};

use super::{CallAnswer, CallResult, Identity};

/// A row to insert.
#[derive(Debug)]
#[non_exhaustive]
pub struct NewRow<'a> {
    /// The identity of the message.
    pub identity: &'a Identity,
    /// Its payload, headers and facts.
    pub delivery: &'a Delivery,
    /// The number of failed attempts.
    pub attempts: u32,
    /// The reason for which it is dead, or the time until it is due.
    pub state: Result<Duration, Reason>,
    /// The error of the last attempt; empty if there was none.
    pub error: &'a str,
    /// Whether its handler makes an external call first: the row begins in its [call phase](super::InboxRows).
    pub calls: bool,
    /// The key under which the provider will know its external call, if its handler makes one. It is stored with the row, and
    /// not made when the call begins, so that a row that was restored from a backup is called under the same key again.
    pub provider_key: Option<Uuid>,
    /// The answer of its external call, if that was made before: for a dead letter whose handler has committed.
    pub answer: Option<&'a CallAnswer>,
    /// The name of the call that has this answer.
    pub call_name: Option<&'a str>,
    /// When the first call under its key was about to begin; `None` without an answer.
    pub called_at: Option<SystemTime>,
}

impl<'a> NewRow<'a> {
    /// A row of a message that has no failed attempt and no error.
    pub fn new(identity: &'a Identity, delivery: &'a Delivery, state: Result<Duration, Reason>) -> Self {
        let kept = delivery.rare().call.as_deref();
        // Without an answer, a row that was called would be one in its call phase.
        let answered = kept.filter(|call| call.answer.is_some());
        Self {
            identity,
            delivery,
            attempts: 0,
            state,
            error: "",
            calls: false,
            provider_key: kept.map(|call| call.provider_key),
            answer: answered.and_then(|call| call.answer.as_ref()),
            call_name: answered.and_then(|call| call.name.as_deref()),
            called_at: answered.and_then(|call| call.called_at),
        }
    }

    /// Sets the number of failed attempts and the error of the last one.
    pub fn with_attempts(self, attempts: u32, error: &'a str) -> Self {
        Self { attempts, error, ..self }
    }

    /// Lets the row begin in its call phase, with this key, unless it has one.
    pub fn with_call(self, provider_key: Uuid) -> Self {
        Self { calls: true, ..self.with_provider_key(provider_key) }
    }

    /// Gives the row this key for an external call, unless it has one.
    pub fn with_provider_key(self, provider_key: Uuid) -> Self {
        Self { provider_key: self.provider_key.or(Some(provider_key)), ..self }
    }
}

/// An inbox row. A store outside this crate starts with [`Row::new`] and sets the fields that it has read.
///
/// ```
/// # use idem_core::{Store, operator::{Filter, Operator, Page}, store::Row};
/// /// One line for an operator.
/// fn line(row: &Row) -> String {
///     let (key, reason) = (&row.identity.key, row.reason.map_or("scheduled", |reason| reason.as_str()));
///     format!("{} {} {key}: {reason} after {} attempts: {}", row.id, row.handler, row.attempts, row.error)
/// }
/// # async fn list<S: Store>(operator: &Operator<S>) -> Result<(), idem_core::Error> {
/// for row in operator.list(&Filter::new(), Page::new(20)).await?.rows {
///     println!("{}", line(&row));
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Row {
    /// The id of the row.
    pub id: i64,
    /// The identity of the message.
    pub identity: Identity,
    /// The handler's name; empty if no handler is known.
    pub handler: String,
    /// The message as it was delivered.
    pub delivery: Delivery,
    /// The token of the fetch by which a worker has it; `None` if none has.
    pub locked_by: Option<Uuid>,
    /// Runs started since the last result. A running one is counted.
    pub crash_count: u32,
    /// The number of failed attempts.
    pub attempts: u32,
    /// Runs since the last result that lost their database connection.
    pub lost_connections: u32,
    /// How many deliveries the row stands for: a conflict, and a message without a key, is stored again in the row of the same
    /// content. A duplicate is not counted.
    pub deliveries: u64,
    /// Why it is dead; `None` while it is scheduled.
    pub reason: Option<Reason>,
    /// The error of the last attempt.
    pub error: String,
    /// When it was stored.
    pub created_at: SystemTime,
    /// When it runs next.
    pub run_at: SystemTime,
    /// When another worker may have it, if one has it now.
    pub locked_until: Option<SystemTime>,
    /// When it became a dead letter.
    pub died_at: Option<SystemTime>,
    /// How long it had been due when it was fetched; set only by [`fetch`](crate::store::InboxRows::fetch).
    pub waited: Option<Duration>,
    /// How many external calls have begun since the last result, including one that is about to begin; `None` unless it is in
    /// its [call phase](super::InboxRows).
    pub calls: Option<u32>,
    /// The key under which the provider knows its external call: for an operator who asks the provider about it. A row has it
    /// before its first call.
    pub provider_key: Option<Uuid>,
    /// When the first call under this key was about to begin, since the provider last said that it knows of none; `None` if none
    /// was.
    pub called_at: Option<SystemTime>,
    /// Whether no call had begun under this key when the row was fetched, or none of which the provider knows. It is
    /// known by the token that has written [`called_at`](Self::called_at), and not by a clock. `false` for a row that
    /// is not fetched. It says nothing about a row with an answer.
    pub is_first_call: bool,
    /// The name of the call that has begun under this key; behind that of one whose provider knows no keys is ` (at most once)`.
    pub call_name: Option<String>,
    /// When a question to the provider, what became of the call, first failed.
    pub asked_at: Option<SystemTime>,
    /// The answer of its call, as JSON.
    pub answer: Option<CallAnswer>,
}

impl Row {
    /// A row that was delivered once, has not run, is not fetched, and has been due since it was stored.
    pub fn new(id: i64, identity: Identity, handler: String, delivery: Delivery, created_at: SystemTime) -> Self {
        Self {
            id,
            identity,
            handler,
            delivery,
            locked_by: None,
            crash_count: 0,
            attempts: 0,
            lost_connections: 0,
            deliveries: 1,
            reason: None,
            error: String::new(),
            created_at,
            run_at: created_at,
            locked_until: None,
            died_at: None,
            waited: None,
            calls: None,
            provider_key: None,
            called_at: None,
            is_first_call: false,
            call_name: None,
            asked_at: None,
            answer: None,
        }
    }

    /// Returns whether its external call may have begun, so that only a handler that makes this call can go on with it.
    pub(crate) fn may_have_called(&self) -> bool {
        self.called_at.is_some() || self.answer.is_some()
    }

    /// Its approximate memory usage.
    pub fn bytes(&self) -> usize {
        self.delivery.bytes() + self.answer.as_ref().map_or(0, |answer| answer.as_bytes().len())
    }
}

/// The result for a fetched row. Each variant clears the token, and applies only if the row still has that token;
/// [`Refunded`](Self::Refunded) and the answer of a [`Called`](Self::Called) do otherwise.
// Exhaustive: a store that ignored a new result or a new part of one would run a message too often or lose it, so it
// must not compile.
#[derive(Debug, Clone)]
pub enum RowResult {
    /// The run failed: attempts + 1, starts 0, lost connections 0; due after this time, or dead for this reason.
    Failed {
        /// The time until it runs again, or the reason why it does not.
        next: Result<Duration, Reason>,
        /// The handler's error.
        error: String,
    },
    /// The run lost its connection: start refunded, lost connections + 1; due after this time, or, at the 10th, dead as
    /// `broke its connection`.
    Broke {
        /// The time until it runs again.
        due: Duration,
        /// The error that was observed.
        error: String,
    },
    /// It was not run, or its run does not count: start refunded, due after this time.
    Snoozed {
        /// The time until it may be fetched again.
        due: Duration,
    },
    /// It has waited in a process, and its start was refunded before: due after this time.
    Released {
        /// The time until it may be fetched again.
        due: Duration,
    },
    /// Its handler makes an external call first, and the row has no answer: due now, in its [call phase](super::InboxRows),
    /// with no start and no lost connection.
    LeftToCall {
        /// The key of its call, unless it has one.
        provider_key: Uuid,
    },
    /// It cannot be run: dead, without counting an attempt. Starts and lost connections stay, for an operator to see.
    Dead {
        /// The reason.
        reason: Reason,
        /// The error that was found.
        error: String,
    },
    /// It has not run: its lease was lost, or it waits in its process. Start refunded, whoever holds the row now, and never below
    /// 0; the token stays. Recording it again refunds another start. The answer is always `true`.
    Refunded,
    /// The result of its call. An answer is recorded also if the row no longer has the token, since another worker may have
    /// called meanwhile under the same key: as long as it is in its call phase and has this key.
    Called(CallResult),
}

/// The number of lost connections that makes a message a dead letter.
pub const MAX_LOST_CONNECTIONS: u32 = 10;
/// The number of starts without a result that makes a message a dead letter.
pub const MAX_STARTS: u32 = 4;

/// The number of leases for which the last lease must be over before a row becomes a dead letter. A worker that was paused beyond
/// its lease refunds its start meanwhile.
pub const CRASHED_LEASES: u32 = 3;
/// How many rows become dead letters in one statement, because each of them is read for its report.
pub const CRASHED_AT_ONCE: u32 = 20;
