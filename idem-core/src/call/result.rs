//! Records and reports the results of calls.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::execute::Failure;
use crate::external::CallLimits;
use crate::inbox::read_row;
use crate::runtime::{Ended, Pipeline};
use crate::store::{CallResult, Row, error_text};
use crate::{Outcome, Reason, Store};

impl<S: Store> Pipeline<S> {
    /// Records the result of a call, and retries until the database has answered.
    pub(super) async fn write_call(&self, row: &Row, result: &CallResult) -> Result<(), Ended> {
        let tries = AtomicUsize::new(0);
        let write = || {
            tries.fetch_add(1, Relaxed);
            self.store.record_call(row, result)
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
    use crate::store::{CallAnswer, HandlerId, Identity};
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
