//! Statements about rows in their call phase, for the trace of a process.

use idem_core::Reason;
use idem_core::store::{CallResult, Row};

/// The name and the values of the step that records a result.
pub(super) fn recorded(row: &Row, result: &CallResult) -> (&'static str, String) {
    let key = key(row);
    let yes = |is: bool| if is { "yes" } else { "no" };
    let (dead, unused) = (yes(result.next.is_err()), yes(result.is_unused));
    match result {
        CallResult { answer: Some(_), .. } => ("answer-kept", key),
        CallResult { in_doubt: true, .. } => ("call-doubted", format!("{key} dead={dead}")),
        CallResult { is_question: true, next: Ok(_), .. } => ("question-failed", format!("{key} dead={dead}")),
        CallResult { next: Err(Reason::Unresolved), .. } => ("unresolved", key),
        CallResult { is_attempt: true, .. } => ("call-not-done", format!("{key} unused={unused} dead={dead}")),
        CallResult { next: Ok(_), .. } => ("call-snoozed", format!("{key} unused={unused}")),
        CallResult { .. } => ("call-rejected", key),
    }
}

/// The value with the key under which the provider knows the call.
pub(super) fn key(row: &Row) -> String {
    row.provider_key.map(|key| format!("key={key}")).unwrap_or_default()
}
