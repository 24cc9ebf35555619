//! Statements about rows in their call phase, for the trace of a process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use idem_core::Reason;
use idem_core::store::{CallResult, Caller, Row, StoreError, TakenCalls};
use uuid::Uuid;

use crate::trace::{Step, Subject};

use super::taking::{is_refused, leased};

/// The takes of calls that had no answer.
#[derive(Debug, Clone, Default)]
pub(super) struct CallTakes(Arc<Mutex<Vec<Unanswered>>>);

/// A take that had no answer. Its rows are found by its token.
#[derive(Debug)]
struct Unanswered {
    step: Step,
    token: Uuid,
    callers: Vec<Caller>,
}

impl CallTakes {
    /// The answer of a take is there.
    pub(super) fn answered(
        &self,
        step: Option<Step>,
        callers: &[Caller],
        token: Uuid,
        answer: &Result<TakenCalls, StoreError>,
    ) {
        match (step, answer) {
            (Some(step), Ok(found)) => taken(step, callers, &found.rows),
            (Some(step), Err(error)) if is_refused(error) => step.nothing(),
            (Some(step), Err(_)) => self.open().push(Unanswered { step, token, callers: callers.to_vec() }),
            (None, _) => {}
        }
    }

    /// The rows of a take without an answer were found by its token.
    pub(super) fn found(&self, token: Uuid, rows: &[Row]) {
        let mut open = self.open();
        if let Some(place) = open.iter().position(|take| take.token == token) {
            let Unanswered { step, callers, .. } = open.remove(place);
            taken(step, &callers, rows);
        }
    }

    fn open(&self) -> MutexGuard<'_, Vec<Unanswered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn taken(step: Step, callers: &[Caller], rows: &[Row]) {
    for row in rows {
        let Some(of) = Subject::of(&row.identity) else { continue };
        let caller = callers.iter().find(|caller| caller.handler == row.identity.handler);
        let lease = caller.map(|caller| leased(caller.lease)).unwrap_or_default();
        step.also("call-taken", of, format!("{} {lease}", key(row)));
    }
    step.nothing();
}

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
        CallResult { next: Ok(_), .. } => ("call-given-back", format!("{key} unused={unused}")),
        CallResult { .. } => ("call-rejected", key),
    }
}

/// The value with the key under which the provider knows the call.
pub(super) fn key(row: &Row) -> String {
    row.provider_key.map(|key| format!("key={key}")).unwrap_or_default()
}
