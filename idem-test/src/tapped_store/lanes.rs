//! Statements about the outbox, for the trace of a process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idem_core::store::{LaneLeases, OutboxFound, OutboxId, PublishFailure, RowRef, StoreError};
use uuid::Uuid;

use crate::trace::{ProcessTrace, Step, Subject};

use super::taking::{is_refused, leased};

/// The lanes that relays have leased, by their tokens.
#[derive(Debug, Clone, Default)]
pub(super) struct Lanes(Arc<Mutex<BTreeMap<Uuid, BTreeSet<u8>>>>);

impl Lanes {
    /// The answer of a take of lanes is there.
    pub(super) fn taken(
        &self,
        step: Option<Step>,
        (outbox, token, lease): (OutboxId, Uuid, Duration),
        answer: &Result<Vec<u8>, StoreError>,
    ) {
        let Some(step) = step else { return };
        match answer {
            Ok(lanes) => {
                lanes.iter().for_each(|lane| step.also("lane-taken", lane_of(outbox, *lane), leased(lease)));
                self.known().entry(token).or_default().extend(lanes);
                step.nothing();
            }
            Err(error) if is_refused(error) => step.nothing(),
            // The lanes that it has taken are told by the next renewal.
            Err(_) => {}
        }
    }

    /// The answer of a renewal is there.
    pub(super) fn renewed(
        &self,
        step: Option<Step>,
        (outbox, token, lease): (OutboxId, Uuid, Duration),
        answer: &Result<LaneLeases, StoreError>,
    ) {
        let Some(step) = step else { return };
        if let Ok(LaneLeases { held, .. }) = answer {
            held.iter().for_each(|lane| step.also("lane-renewed", lane_of(outbox, *lane), leased(lease)));
            self.known().insert(token, held.iter().copied().collect());
        }
        // Without an answer it may have been done as well. A lease that is over then is not used.
        step.nothing();
    }

    /// Lanes are given back; `None`: all of them. The steps have no answers: nobody tells which of them were still held.
    pub(super) fn given(
        &self,
        process: Option<&ProcessTrace>,
        (outbox, token): (OutboxId, Uuid),
        lanes: Option<&[u8]>,
    ) {
        let Some(process) = process else { return };
        let mut known = self.known();
        let held = known.entry(token).or_default();
        let lanes: BTreeSet<u8> = lanes.map_or_else(|| held.clone(), |lanes| lanes.iter().copied().collect());
        held.retain(|lane| !lanes.contains(lane));
        drop(known);
        for lane in lanes {
            drop(process.begin("lane-given", lane_of(outbox, lane), String::new()));
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Uuid, BTreeSet<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer of a read is there.
pub(super) fn read(step: Option<Step>, outbox: OutboxId, answer: &Result<OutboxFound, StoreError>) {
    let Some(step) = step else { return };
    for row in answer.iter().flat_map(|found| &found.rows) {
        let of = Subject { message: row.message.id().simple().to_string(), ..lane_of(outbox, row.lane) };
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

/// Writes that these refusals are to be recorded. The steps have no answers: nobody tells which lanes were still held.
pub(super) fn records(process: &ProcessTrace, outbox: OutboxId, failures: &[PublishFailure]) {
    for PublishFailure { row, next, .. } in failures {
        let dead = if next.is_none() { "yes" } else { "no" };
        drop(process.begin("refusal-recorded", row_of(outbox, row), format!("dead={dead}")));
    }
}

fn lane_of(outbox: OutboxId, lane: u8) -> Subject {
    Subject { key: format!("lane {lane} of the outbox {}", outbox.number), message: String::new() }
}

fn row_of(outbox: OutboxId, row: &RowRef) -> Subject {
    Subject { message: row.message_id.simple().to_string(), ..lane_of(outbox, row.lane) }
}
