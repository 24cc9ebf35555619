//! What follows from the reply of a call.

use std::time::Duration;

use crate::execute::Failure;
use crate::external::{CallLimits, Doubt};
use crate::routes::Route;
use crate::runtime::{Ended, Pipeline};
use crate::store::{CallAnswer, CallResult, Row};
use crate::{BoxError, Outcome, Reason, Store};

use super::result::unresolved;

impl<S: Store> Pipeline<S> {
    /// Keeps the answer of a call: the row is an ordinary one from now on, whose run completes the message.
    pub(super) async fn keep_answer(&self, row: &Row, answer: CallAnswer) -> Option<Outcome> {
        let (size, limit) = (answer.as_bytes().len(), self.settings.max_payload);
        if size > limit {
            let error = format!(
                "the answer of the call has {size} bytes, and the limit is {limit}: raise `.max_payload(..)`, or return less, \
                 and replay the message"
            );
            return self.end_call(row, Reason::TooLarge, error, false).await;
        }
        let id = row.id;
        match self.write_call(row, &CallResult::answered(answer)).await {
            Ok(()) => self.scheduled.notify_one(),
            Err(Ended::Lost) => self.tell_of_lost_answer(row).await,
            Err(Ended::Park(_)) => tracing::warn!(
                id,
                "the database refuses to keep the answer of a call, which therefore stays in doubt: it is repeated or asked about"
            ),
            Err(_) => tracing::warn!(
                id,
                "the worker has stopped before the database has taken the answer of a call, which therefore stays in doubt"
            ),
        }
        None
    }

    /// Charges a call that has failed. `left`: the rest of the lease, before which a call in doubt is not repeated. `is_first`:
    /// no call before it can have had an effect.
    pub(super) async fn call_failed(
        &self,
        (route, limits): (&Route<S>, &CallLimits),
        row: &Row,
        (doubt, error, left): (Doubt, BoxError, Duration),
        is_first: bool,
    ) -> Option<Outcome> {
        let mut failure = self.failure_of(route, row.attempts, &error)?;
        match (doubt, failure.next) {
            (Doubt::Permanent, _) => failure.next = Err(Reason::Permanent),
            // It must not be repeated, and nobody can be asked.
            (Doubt::Unknown, Ok(_) | Err(Reason::Exhausted)) if limits.key_life.is_none() && !limits.reconciles => {
                failure.next = Err(Reason::Unresolved);
                failure.error = unresolved(limits, row, &failure.error);
            }
            (Doubt::NotDone, _) => {}
            (_, next) => failure.next = next.map(|due| due.max(left)),
        }
        // A permanent error may come from a client that has given up, while its request is still on its way.
        let (is_unused, in_doubt) = (is_first && doubt == Doubt::NotDone, doubt != Doubt::NotDone);
        let result = CallResult::failed(failure.next, failure.error.clone());
        self.charge_call(row, &failure, CallResult { is_unused, in_doubt, ..result }).await
    }

    /// Charges a question that has failed what became of a call. It may be asked again, and whatever ends that leaves it
    /// unknown. Questions have attempts of their own: an outage may have used up those of the calls.
    pub(super) async fn question_failed(
        &self,
        (route, limits): (&Route<S>, &CallLimits),
        row: &Row,
        error: BoxError,
    ) -> Option<Outcome> {
        let failed = if row.asked_at.is_some() { row.attempts } else { 0 };
        let mut failure = self.failure_of(route, failed, &error)?;
        if failure.next.is_err() {
            failure.next = Err(Reason::Unresolved);
            failure.error = unresolved(limits, row, &failure.error);
        }
        let result = CallResult::failed(failure.next, failure.error.clone());
        self.charge_call(row, &failure, CallResult { is_question: true, ..result }).await
    }

    /// Leaves a row whose call was cut off by the end of the worker. No attempt is charged.
    pub(super) async fn call_stopped(&self, row: &Row, in_doubt: bool) -> Option<Outcome> {
        let _ = self.write_call(row, &CallResult { in_doubt, ..CallResult::given_back(Duration::ZERO) }).await;
        None
    }

    /// Applies the retry policy of the handler, after this many failed attempts.
    fn failure_of(&self, route: &Route<S>, attempts: u32, error: &BoxError) -> Option<Failure> {
        match self.conclude(route, Ended::Failed(Failure::of(error)), attempts, 0)? {
            Ended::Failed(failure) => Some(failure),
            _ => None,
        }
    }
}
