//! Requests about deliveries, of up to ten entries each.

use std::error::Error as StdError;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry,
};
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::config::Config;
use crate::error::{Cause, Failure};

/// How long to wait for the answer to a request, with the repetitions of the SDK.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);

/// The maximum number of entries of a request, and of messages of a receive.
pub(crate) const ENTRIES: usize = 10;

/// The queue to which requests are sent.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) config: Arc<Config>,
    pub(crate) url: String,
    pub(crate) name: Arc<str>,
}

/// The result of one entry.
pub(crate) type Answer = Result<(), Failure>;

/// Waits for the answer to a request.
pub(crate) async fn answered<T, E, R>(request: impl Future<Output = Result<T, SdkError<E, R>>>) -> Result<T, Failure>
where
    E: ProvideErrorMetadata + StdError + 'static,
    R: Debug,
{
    match timeout(ANSWER, request).await {
        Ok(answer) => answer.map_err(|error| Failure::new(&error)),
        Err(_) => Err(Failure::silence()),
    }
}

impl Target {
    /// Deletes up to ten messages by their receipt handles. The results have the same order.
    pub(crate) async fn delete(&self, handles: &[String]) -> Vec<Answer> {
        let entry = |(number, handle): (usize, &String)| {
            DeleteMessageBatchRequestEntry::builder().id(number.to_string()).receipt_handle(handle).build()
        };
        let entries = match handles.iter().enumerate().map(entry).collect() {
            Ok(entries) => entries,
            Err(error) => return all(handles.len(), &Failure::of("InvalidEntry", &error.to_string())),
        };
        let request = self.config.client.delete_message_batch().queue_url(&self.url).set_entries(Some(entries));
        match answered(request.send()).await {
            Ok(answer) => results(handles.len(), answer.successful().iter().map(|entry| entry.id()), answer.failed()),
            Err(failure) => all(handles.len(), &failure),
        }
    }

    /// Makes up to ten messages visible again after this time; 0: at once. The results have the same order.
    pub(crate) async fn change_visibility(&self, handles: &[String], visibility: Duration) -> Vec<Answer> {
        // SQS allows 12 hours.
        let seconds = i32::try_from(visibility.as_secs()).unwrap_or(i32::MAX);
        let entry = |(number, handle): (usize, &String)| {
            let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(number.to_string());
            entry.receipt_handle(handle).visibility_timeout(seconds).build()
        };
        let entries = match handles.iter().enumerate().map(entry).collect() {
            Ok(entries) => entries,
            Err(error) => return all(handles.len(), &Failure::of("InvalidEntry", &error.to_string())),
        };
        let request =
            self.config.client.change_message_visibility_batch().queue_url(&self.url).set_entries(Some(entries));
        match answered(request.send()).await {
            Ok(answer) => results(handles.len(), answer.successful().iter().map(|entry| entry.id()), answer.failed()),
            Err(failure) => all(handles.len(), &failure),
        }
    }
}

/// Sends entries in one request. If the request is refused because of the content of one, each is sent by itself.
pub(crate) async fn isolated<T: Clone, F>(entries: Vec<T>, send: impl Fn(Vec<T>) -> F) -> Vec<Answer>
where
    F: Future<Output = Result<Vec<Answer>, Failure>>,
{
    let count = entries.len();
    match send(entries.clone()).await {
        Ok(answers) => answers,
        Err(failure) if failure.cause == Cause::Content && count > 1 => {
            let one = |answers: Result<Vec<Answer>, Failure>| answers.unwrap_or_else(|failure| all(1, &failure));
            join_all(entries.into_iter().map(|entry| send(vec![entry]))).await.into_iter().flat_map(one).collect()
        }
        Err(failure) => all(count, &failure),
    }
}

/// Returns this failure for each of so many entries.
pub(crate) fn all<T>(count: usize, failure: &Failure) -> Vec<Result<T, Failure>> {
    (0..count).map(|_| Err(failure.clone())).collect()
}

/// Sorts the results of entries, whose ids are their numbers. One that is not among them has no answer.
pub(crate) fn results<'a>(
    count: usize,
    successful: impl Iterator<Item = &'a str>,
    failed: &[BatchResultErrorEntry],
) -> Vec<Answer> {
    let mut results = all(count, &Failure::of("NoResult", "the answer does not name this entry"));
    let successful = successful.map(|id| (id, Ok(())));
    let failed =
        failed.iter().map(|entry| (entry.id(), Err(Failure::of(entry.code(), entry.message().unwrap_or_default()))));
    for (id, result) in successful.chain(failed) {
        if let Some(slot) = id.parse().ok().and_then(|number: usize| results.get_mut(number)) {
            *slot = result;
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_entry_because_of_which_a_request_is_refused_fails_by_itself() {
        let send = |numbers: Vec<usize>| async move {
            match numbers.contains(&2) {
                true => Err(Failure::of("InvalidParameterValue", "2")),
                false => Ok(numbers.iter().map(|_| Ok(())).collect()),
            }
        };
        let ok: Vec<_> = isolated(vec![1, 2, 3], send).await.iter().map(Result::is_ok).collect();
        assert_eq!(ok, [true, false, true]);
        let away = |_: Vec<usize>| async { Err(Failure::of("InternalError", "")) };
        assert!(isolated(vec![1, 2], away).await.iter().all(Result::is_err));
    }

    #[test]
    fn each_entry_has_its_own_result_and_one_that_is_not_named_has_failed() {
        let failed = BatchResultErrorEntry::builder().id("2").code("ReceiptHandleIsInvalid").sender_fault(true);
        let results = results(4, ["3", "0", "9", "x"].into_iter(), &[failed.build().unwrap()]);
        let ok: Vec<_> = results.iter().map(Result::is_ok).collect();
        assert_eq!(ok, [true, false, false, true]);
        let failure = results[1].as_ref().unwrap_err();
        assert_eq!(failure.cause, Cause::Unavailable);
        assert!(results[2].as_ref().unwrap_err().text().contains("ReceiptHandleIsInvalid"));
    }
}
