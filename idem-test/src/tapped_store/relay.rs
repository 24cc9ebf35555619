//! Statements of relays, for the trace of a process.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idem_core::store::{LeaseAnswer, OutboxFound, OutboxId, PublishFailure, RowRef, StoreError};
use uuid::Uuid;

use crate::trace::{ProcessTrace, Step, Subject};

use super::fetching::{is_refused, leased};

/// The tokens under which relays have, or may have, the lease of their outbox.
#[derive(Debug, Clone, Default)]
pub(super) struct RelayLeases(Arc<Mutex<BTreeSet<Uuid>>>);

impl RelayLeases {
    /// The step that a request for the lease is.
    pub(super) fn step(&self, token: Uuid) -> &'static str {
        let is_held = self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&token);
        if is_held { "lease-renewed" } else { "lease-taken" }
    }

    /// The answer to a request for the lease is there.
    pub(super) fn answered(
        &self,
        (name, step): (&'static str, Option<Step>),
        (outbox, token, lease): (OutboxId, Uuid, Duration),
        answer: &Result<LeaseAnswer, StoreError>,
    ) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Ok(LeaseAnswer::Held) => held.extend([token]),
            Ok(_) => held.retain(|held| *held != token),
            Err(_) => {}
        }
        drop(held);
        let Some(step) = step else { return };
        match answer {
            Ok(LeaseAnswer::Held) => {
                step.also(name, of_outbox(outbox), leased(lease));
                step.nothing();
            }
            // Without an answer it may have been taken; a renewal tells it, and a lease that is over then is not used.
            Err(error) if name == "lease-taken" && !is_refused(error) => {}
            _ => step.nothing(),
        }
    }

    /// The lease is released. The step has no answer: nobody tells whether it was still held.
    pub(super) fn given(&self, process: Option<&ProcessTrace>, (outbox, token): (OutboxId, Uuid)) {
        let was_held = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&token);
        if let Some(process) = process.filter(|_| was_held) {
            drop(process.begin("lease-given", of_outbox(outbox), String::new()));
        }
    }
}

/// The answer of a read is there.
pub(super) fn read(step: Option<Step>, outbox: OutboxId, answer: &Result<OutboxFound, StoreError>) {
    let Some(step) = step else { return };
    for row in answer.iter().flat_map(|found| &found.rows) {
        let of = Subject { message: row.message.id().simple().to_string(), ..of_outbox(outbox) };
        let order = row.message.key().map(|key| format!(" order={}", Subject::hex(key.as_bytes()))).unwrap_or_default();
        step.also("read", of, format!("id={}{order}", row.id));
    }
    step.nothing();
}

/// Writes that these messages are to be deleted.
pub(super) fn deletes(process: &ProcessTrace, outbox: OutboxId, rows: &[RowRef]) -> Vec<Step> {
    rows.iter().map(|row| process.begin("deleted", row_of(outbox, row), String::new())).collect()
}

/// The answer of a delete is there. If it has deleted some of its messages only, nobody tells which.
pub(super) fn deleted(steps: Vec<Step>, answer: &Result<u64, StoreError>) {
    match answer {
        Ok(deleted) if *deleted == steps.len() as u64 => steps.into_iter().for_each(Step::done),
        Ok(0) => steps.into_iter().for_each(Step::nothing),
        Err(error) if is_refused(error) => steps.into_iter().for_each(Step::nothing),
        Ok(_) | Err(_) => {}
    }
}

/// Writes that these refusals are to be recorded. The steps have no answers: nobody tells whether the lease was still held.
pub(super) fn records(process: &ProcessTrace, outbox: OutboxId, failures: &[PublishFailure]) {
    for PublishFailure { row, next, .. } in failures {
        let dead = if next.is_none() { "yes" } else { "no" };
        drop(process.begin("refusal-recorded", row_of(outbox, row), format!("dead={dead}")));
    }
}

fn of_outbox(outbox: OutboxId) -> Subject {
    Subject { key: format!("the outbox {}", outbox.number), message: String::new() }
}

fn row_of(outbox: OutboxId, row: &RowRef) -> Subject {
    Subject { message: row.message_id.simple().to_string(), ..of_outbox(outbox) }
}
