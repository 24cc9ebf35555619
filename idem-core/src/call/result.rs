//! What follows from the reply of a call: records and reports results.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::external::{CallLimits, Doubt};
use crate::inbox::read_row;
use crate::routes::Route;
use crate::run::Failure;
use crate::runtime::{Ended, Pipeline};
use crate::store::{CallAnswer, CallResult, Row, RowResult, error_text};
use crate::{BoxError, Outcome, Reason, Store};

impl<S: Store> Pipeline<S> {
    /// Keeps the answer of a call: the row is an ordinary one from now on, whose run completes the message. It is committed before
    /// that run begins: a completion that ends its process is then a suspect like any other, and idem never asks twice for an
    /// answer that it has.
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

    /// Records the result of a call, and retries until the database has answered.
    pub(super) async fn write_call(&self, row: &Row, result: &CallResult) -> Result<(), Ended> {
        let tries = AtomicUsize::new(0);
        let of_call = RowResult::Called(result.clone());
        let write = || {
            tries.fetch_add(1, Relaxed);
            self.store.record_result(row, &of_call)
        };
        match self.insist_for(row, None, write).await {
            // Of an earlier try, the answer may have been lost, and not what it has written.
            Err(Ended::Lost) if tries.load(Relaxed) > 1 && self.has_result(row, result).await => Ok(()),
            written => written,
        }
    }

    /// Returns whether the row is as this result leaves it. A row that is gone was completed, nearly always with the answer of
    /// this result.
    async fn has_result(&self, row: &Row, result: &CallResult) -> bool {
        match self.found(row.id).await {
            Some(Some(found)) => is_left_by(&found, row, result),
            Some(None) if result.answer.is_some() => {
                let (id, provider_key) = (row.id, row.provider_key.unwrap_or_default());
                tracing::warn!(
                    id,
                    %provider_key,
                    "the message of a call was completed before the database had confirmed its answer: with this answer, unless \
                     another call was made meanwhile because this one was not to be found. Then there may be two effects"
                );
                true
            }
            Some(None) | None => false,
        }
    }

    /// Reads a row, scheduled or dead. Returns `Some(None)` if it is gone, and `None` if the worker stops.
    async fn found(&self, id: i64) -> Option<Option<Row>> {
        self.outage.insist(&self.stop, || read_row(&self.store, &self.consumer, id)).await
    }

    /// Tells of an answer that is not used. If its key was replaced meanwhile, its call may have had a second effect, for which
    /// nobody would look.
    pub(super) async fn tell_of_lost_answer(&self, row: &Row) {
        let (id, provider_key) = (row.id, row.provider_key.unwrap_or_default());
        let found = self.found(row.id).await.flatten().filter(|found| found.provider_key != row.provider_key);
        let Some(next) = found.and_then(|found| found.provider_key) else {
            tracing::warn!(
                id,
                %provider_key,
                "a call has returned after another worker had taken its message, or an operator had changed it: its answer is \
                 not used. If another call was made meanwhile, because this one was not to be found, there may be two effects"
            );
            return;
        };
        tracing::error!(
            id,
            %provider_key,
            %next,
            "a call has returned under a key that an operator has replaced meanwhile: look at the provider for both keys, since \
             there may be two effects"
        );
    }

    /// Gives a row back that was not called. `is_first`: no call before can have had an effect.
    pub(super) async fn give_back_call(&self, row: &Row, is_first: bool, due: Duration) -> Option<Outcome> {
        let _ = self.write_call(row, &CallResult { is_unused: is_first, ..CallResult::given_back(due) }).await;
        self.calls_due.notify_one();
        None
    }

    /// Makes a row dead, without one more attempt. `is_unused`: nothing was sent, and no call before can have had an effect.
    pub(super) async fn end_call(&self, row: &Row, reason: Reason, error: String, is_unused: bool) -> Option<Outcome> {
        let failure = Failure { attempts: row.attempts, ..Failure::new(Err(reason), error) };
        let result = CallResult { is_unused, ..CallResult::dead(reason, failure.error.clone()) };
        self.charge_call(row, &failure, result).await
    }

    /// Records a failure of a call or of a question, with this result.
    pub(super) async fn charge_call(&self, row: &Row, failure: &Failure, result: CallResult) -> Option<Outcome> {
        self.write_call(row, &result).await.is_ok().then(|| failure.logged(row.id))
    }
}

/// Returns whether the row that was found is as this result leaves it. The attempt before may have had the same error, and a call
/// under another key the same answer.
fn is_left_by(found: &Row, row: &Row, result: &CallResult) -> bool {
    match &result.answer {
        Some(answer) => found.answer.as_ref() == Some(answer) && found.provider_key == row.provider_key,
        None => {
            let has_error = result.error.as_ref().is_some_and(|error| error_text(error) == found.error);
            found.reason == result.next.err() && has_error && (!result.is_attempt || found.attempts != row.attempts)
        }
    }
}

/// The error of a message whose call may have had an effect that nobody can tell.
pub(super) fn unresolved(limits: &CallLimits, row: &Row, why: &str) -> String {
    let key = row.provider_key.map(|key| key.to_string()).unwrap_or_default();
    let name = row.call_name.as_deref().unwrap_or(limits.name);
    let looked_for = match limits.takes_key {
        _ if !limits.is_of(row) => {
            format!("the key {key}, and for the effect that this message asks for, since that call may have sent none")
        }
        true => format!("the key {key}"),
        false => "the effect that this message asks for: the call sends no key".to_owned(),
    };
    format!(
        "whether the call `{name}` had an effect is unknown: {why}. Look at the provider for {looked_for}. Then tell the \
         result by `Inbox::resolve`, with the key {key}"
    )
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use uuid::Uuid;

    use super::*;
    use crate::store::{HandlerId, Identity};
    use crate::{Delivery, Fingerprint, Key};

    #[test]
    fn an_equal_answer_of_a_call_under_another_key_is_another_one() {
        let identity = Identity { handler: HandlerId(1), key: Key::empty(), fingerprint: Fingerprint::none() };
        let delivery = Delivery::new("orders", "");
        let mut row = Row::new(7, identity, String::new(), delivery, SystemTime::UNIX_EPOCH);
        row.provider_key = Some(Uuid::from_u128(1));
        // As that of each mail.
        let answer = CallAnswer::new("null");
        let mut found = Row { answer: Some(answer.clone()), ..row.clone() };
        let result = CallResult::answered(answer);
        assert!(is_left_by(&found, &row, &result));
        found.provider_key = Some(Uuid::from_u128(2));
        assert!(!is_left_by(&found, &row, &result));
    }
}
