//! What follows from the reply of a call: records and reports results.

use std::time::Duration;

use crate::external::{CallLimits, Doubt};
use crate::routes::Route;
use crate::run::Failure;
use crate::runtime::{Ended, Pipeline};
use crate::store::{CallAnswer, CallResult, Row, RowResult};
use crate::{BoxError, Outcome, Reason, Store};

impl<S: Store> Pipeline<S> {
    /// Records what has become of a call or of a question, and retries until the database has answered. Returns the outcome of the
    /// message, if it has one.
    ///
    /// With its answer, the row is an ordinary one from now on, whose run completes the message. It is committed before that run
    /// begins: a completion that ends its process is then an orphaned row like any other, and idem never asks twice for an answer
    /// that it has.
    pub(super) async fn record_call(&self, row: &Row, result: CallResult) -> Option<Outcome> {
        let of_row = RowResult::Called(result.clone());
        let written = self.write_until_answered(row, None, || self.store.record_result(row, &of_row)).await;
        match (written, result) {
            (Ok(()), CallResult { answer: Some(_), .. }) => self.scheduled.notify_one(),
            (Err(Ended::Lost), CallResult { answer: Some(answer), .. }) => self.find_answer(row, &answer).await,
            (Err(_), CallResult { answer: Some(_), .. }) => tracing::warn!(
                id = row.id,
                show = %self.store.facts().show_row(Some(row.id)),
                "the answer of a call was not kept, because the database refuses it or the worker stops, so that the call stays in \
                 doubt: it is repeated or asked about"
            ),
            (Ok(()), CallResult { error: Some(error), next, is_attempt, is_question, .. }) => {
                let attempts = failed(row, is_question) + u32::from(is_attempt);
                return Some(Failure { attempts, ..Failure::new(next, error) }.logged(self.store.facts(), row.id));
            }
            // Snoozed, or not written: its lease ends.
            _ => self.calls_due.notify_one(),
        }
        None
    }

    /// Returns the result of a call that has this answer.
    pub(super) fn answered(&self, answer: CallAnswer) -> CallResult {
        let (size, limit) = (answer.as_bytes().len(), self.settings.max_payload);
        if size > limit {
            let error = format!(
                "the answer of the call has {size} bytes, and the limit is {limit}: raise `.max_payload(..)`, or return less, \
                 and replay the message"
            );
            return CallResult::dead(Reason::TooLarge, error);
        }
        CallResult::answered(answer)
    }

    /// Checks what has become of an answer that was not recorded, because the row is another worker's now, or an operator has
    /// changed it; or an earlier try has recorded it, and only the response was lost. If the key was replaced, or another call
    /// was made meanwhile, there may be a second effect, for which nobody would look.
    async fn find_answer(&self, row: &Row, answer: &CallAnswer) {
        let (id, provider_key) = (row.id, row.provider_key.unwrap_or_default());
        let ids = [id];
        let read = || self.store.rows(&ids);
        let found = self.outage.retry_until_answered(&self.stop, read).await;
        match found.and_then(|mut rows| rows.pop()).map(|found| (found.provider_key, found.answer)) {
            Some((Some(next), _)) if next != provider_key => tracing::error!(
                id,
                %provider_key,
                %next,
                show = %self.store.facts().show_row(Some(id)),
                "a call has returned under a key that an operator has replaced meanwhile: look at the provider for both keys, \
                 since there may be two effects"
            ),
            Some((_, Some(found))) if found == *answer => self.scheduled.notify_one(),
            _ => tracing::warn!(
                id,
                %provider_key,
                show = %self.store.facts().show_row(Some(id)),
                "the answer of a call was not confirmed, because its message was completed meanwhile, or another worker or an \
                 operator has it: if another call was made, because this one was not to be found, there may be two effects"
            ),
        }
    }

    /// Returns the result of a call, or of a question what became of one, that has failed. `left`: the rest of the lease, before
    /// which a call in doubt is not repeated. `is_first`: no call before it can have had an effect.
    pub(super) fn call_failed(
        &self,
        (route, limits): (&Route<S>, &CallLimits),
        row: &Row,
        (doubt, error, left): (Doubt, BoxError, Duration),
        asks: bool,
        is_first: bool,
    ) -> Option<CallResult> {
        let ended = self.conclude(route, Ended::Failed(Failure::of(&error)), failed(row, asks), 0)?;
        let Ended::Failed(mut failure) = ended else { return None };
        let is_unresolved = match (asks, failure.next) {
            // A question may be asked again, and whatever ends that leaves it unknown.
            (true, next) => next.is_err(),
            // A call must not be repeated, and nobody can be asked.
            (false, Ok(_) | Err(Reason::Exhausted)) => {
                doubt == Doubt::Unknown && limits.key_life.is_none() && !limits.reconciles
            }
            (false, Err(_)) => false,
        };
        match doubt {
            _ if is_unresolved => {
                failure.next = Err(Reason::Unresolved);
                failure.error = unresolved(limits, row, &failure.error);
            }
            _ if asks => {}
            Doubt::Permanent => failure.next = Err(Reason::Permanent),
            Doubt::NotDone => {}
            Doubt::Unknown => failure.next = failure.next.map(|due| due.max(left)),
        }
        let (is_unused, in_doubt) = (is_first && doubt == Doubt::NotDone, doubt != Doubt::NotDone);
        let result = CallResult::failed(failure.next, failure.error);
        Some(match asks {
            true => CallResult { is_question: true, ..result },
            // A permanent error may come from a client that has given up, while its request is still on its way.
            false => CallResult { is_unused, in_doubt, ..result },
        })
    }
}

/// Returns how often the calls of a row have failed, or the questions about them, which have attempts of their own: an outage may
/// have used up those of the calls.
fn failed(row: &Row, asks: bool) -> u32 {
    if !asks || row.asked_at.is_some() { row.attempts } else { 0 }
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
         result by `idem calls resolve`, with the key {key}"
    )
}
