//! Statements that fetch or change rows, for the trace of a process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idem_core::store::{FetchFor, FetchedRows, Row, RowResult, StoreError};
use uuid::Uuid;

use crate::trace::{Step, Subject};

use super::calling;

/// The fetches that had no answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Fetches(Arc<Mutex<Vec<Unanswered>>>);

/// A fetch that had no answer. Its rows are found by its token.
#[derive(Debug)]
struct Unanswered {
    step: Step,
    token: Uuid,
    handlers: Vec<FetchFor>,
}

impl Fetches {
    /// The answer of a fetch is there.
    pub(super) fn answered(
        &self,
        step: Option<Step>,
        handlers: &[FetchFor],
        token: Uuid,
        answer: &Result<FetchedRows, StoreError>,
    ) {
        match (step, answer) {
            (Some(step), Ok(found)) => fetched(step, handlers, &found.rows),
            (Some(step), Err(error)) if is_refused(error) => step.nothing(),
            (Some(step), Err(_)) => self.open().push(Unanswered { step, token, handlers: handlers.to_vec() }),
            (None, _) => {}
        }
    }

    /// The rows of a fetch without an answer were found by its token.
    pub(super) fn found(&self, token: Uuid, rows: &[Row]) {
        let mut open = self.open();
        if let Some(place) = open.iter().position(|fetch| fetch.token == token) {
            let Unanswered { step, handlers, .. } = open.remove(place);
            fetched(step, &handlers, rows);
        }
    }

    fn open(&self) -> MutexGuard<'_, Vec<Unanswered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fetched(step: Step, handlers: &[FetchFor], rows: &[Row]) {
    for row in rows {
        let Some(of) = Subject::of(&row.identity) else { continue };
        let asked = handlers.iter().find(|asked| asked.handler == row.identity.handler);
        let lease = asked.map(|asked| leased(asked.lease)).unwrap_or_default();
        let Row { crash_count: starts, attempts, lost_connections: breaks, .. } = row;
        match row.calls {
            Some(_) => step.also("call-fetched", of, format!("{} {lease}", calling::key(row))),
            None => step.also("fetched", of, format!("starts={starts} attempts={attempts} breaks={breaks} {lease}")),
        }
    }
    step.nothing();
}

/// The value of a step that begins a lease.
pub(super) fn leased(lease: Duration) -> String {
    format!("lease={}", lease.as_millis())
}

/// The answer of a statement that makes crashed rows dead letters is there.
pub(super) fn crashed(step: Option<Step>, answer: &Result<Vec<Row>, StoreError>) {
    let Some(step) = step else { return };
    match answer {
        Ok(rows) => {
            for of in rows.iter().filter_map(|row| Subject::of(&row.identity)) {
                step.also("crashed", of, "dead=yes".to_owned());
            }
            step.nothing();
        }
        Err(error) if is_refused(error) => step.nothing(),
        Err(_) => {}
    }
}

/// The name and the values of the step that records a result.
pub(super) fn recorded(row: &Row, result: &RowResult) -> (&'static str, String) {
    match result {
        RowResult::Failed { next, .. } => {
            let dead = if next.is_err() { "yes" } else { "no" };
            ("recorded", format!("result=failed dead={dead} attempts={}", row.attempts + 1))
        }
        RowResult::Broke { .. } => ("recorded", format!("result=broke breaks={}", row.lost_connections + 1)),
        RowResult::Snoozed { .. } => ("snoozed", String::new()),
        RowResult::Released { .. } => ("released", String::new()),
        RowResult::LeftToCall { .. } => ("left-to-call", String::new()),
        RowResult::Dead { .. } => ("rejected", String::new()),
        RowResult::Refunded => ("refunded", String::new()),
        RowResult::Called(call) => calling::recorded(row, call),
    }
}

/// The answer of a statement about one row is there.
pub(super) fn answered(step: Option<Step>, answer: Result<bool, &StoreError>) {
    match (step, answer) {
        (Some(step), Ok(true)) => step.done(),
        (Some(step), Ok(false)) => step.nothing(),
        (Some(step), Err(error)) if is_refused(error) => step.nothing(),
        _ => {}
    }
}

/// Whether a statement that failed was certainly not done.
pub(super) fn is_refused(error: &StoreError) -> bool {
    !matches!(error, StoreError::ConnectionLost(_) | StoreError::Unavailable(_))
}
