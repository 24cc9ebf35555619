//! The loop that takes rows whose calls are due.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::Store;
use crate::inbox::Looks;
use crate::runtime::{Pipeline, jittered};
use crate::store::{Caller, Row, StoreError, TakenCalls};

/// Makes the calls of a worker until it drains, and then waits for those that were begun. Any number of processes may do so:
/// each row is taken by one of them at a time.
pub(crate) async fn run<S: Store>(pipeline: Arc<Pipeline<S>>) {
    let callers = pipeline.routes.callers();
    if callers.is_empty() {
        return;
    }
    let slots = Arc::new(Semaphore::new(pipeline.settings.call_concurrency));
    let looks = Looks::new(pipeline.settings.poll);
    Calls { pipeline, callers, slots, looks }.serve().await;
}

struct Calls<S: Store> {
    pipeline: Arc<Pipeline<S>>,
    callers: Vec<Caller>,
    slots: Arc<Semaphore>,
    looks: Looks,
}

impl<S: Store> Calls<S> {
    async fn serve(&mut self) {
        let mut running = JoinSet::new();
        while !self.pipeline.draining.is_cancelled() {
            let round = self.round(&mut running).await;
            let more = matches!(round, Ok(true));
            if let Err(fault) = round {
                self.pipeline.outage.report(&fault);
            }
            while running.try_join_next().is_some() {}
            if !more {
                self.pipeline.rest(&self.pipeline.calls_due, jittered(self.pipeline.settings.poll)).await;
            }
        }
        while running.join_next().await.is_some() {}
    }

    /// Starts as many calls as can begin at once. Returns whether at least that many were due. While the outbox is full, none
    /// starts.
    async fn round(&mut self, running: &mut JoinSet<()>) -> Result<bool, StoreError> {
        let Some(slots) = self.free().await else { return Ok(false) };
        if self.pipeline.is_outbox_full() {
            return Ok(false);
        }
        let (rows, taken) = self.take(slots.len()).await?;
        let all = rows.len() == slots.len();
        for (row, slot) in rows.into_iter().zip(slots) {
            let pipeline = self.pipeline.clone();
            running.spawn(async move {
                pipeline.defect.task("calls", pipeline.call_row(&row, taken)).await;
                drop(slot);
            });
        }
        Ok(all)
    }

    /// Waits for a free slot, and while a suspect has the process to itself. Returns `None` if the worker drains.
    async fn free(&self) -> Option<Vec<OwnedSemaphorePermit>> {
        let draining = &self.pipeline.draining;
        let first = draining.run_until_cancelled(self.slots.clone().acquire_owned()).await?.ok()?;
        drop(draining.run_until_cancelled(self.pipeline.suspect_lock.direct()).await?);
        let mut slots = vec![first];
        slots.extend(std::iter::from_fn(|| self.slots.clone().try_acquire_owned().ok()));
        Some(slots)
    }

    /// Takes rows, and returns when they were taken at the earliest. The token is generated before the take, so that rows whose
    /// take got no response are found by it.
    async fn take(&mut self, limit: usize) -> Result<(Vec<Row>, Instant), StoreError> {
        let Pipeline { store, own_statements, outage, stop, .. } = &*self.pipeline;
        let token = Uuid::new_v4();
        let own = own_statements.lock().await;
        let began = Instant::now();
        let since = self.looks.since(began);
        let answer = store.take_calls(&self.callers, limit, since, token).await;
        drop(own);
        if let Ok(taken) = &answer {
            self.looks.found(began, &taken.rows);
        }
        let (mut rows, taken) = match answer {
            Ok(TakenCalls { rows, since }) => (rows, since),
            // Also while the worker drains: what was taken counts as called until it is given back.
            Err(fault @ StoreError::ConnectionLost(_)) => {
                outage.report(&fault);
                (outage.insist(stop, || store.rows_by_token(token)).await.unwrap_or_default(), began)
            }
            Err(fault) => return Err(fault),
        };
        rows.iter_mut().for_each(|row| self.pipeline.complete(row));
        Ok((rows, taken))
    }
}
