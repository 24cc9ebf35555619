//! The loop that takes rows whose calls are due.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::Store;
use crate::inbox::{Looks, free};
use crate::runtime::Pipeline;
use crate::store::{Caller, Row, StoreError};

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
            self.pipeline.rest_after(round, &self.pipeline.calls_due, &mut running).await;
        }
        while running.join_next().await.is_some() {}
    }

    /// Starts as many calls as can begin at once. Returns whether at least that many were due. While the outbox is full, none
    /// starts.
    async fn round(&mut self, running: &mut JoinSet<()>) -> Result<bool, StoreError> {
        // Not while a suspect has the process to itself.
        let ready = async {
            let slots = free(&self.slots).await;
            drop(self.pipeline.suspect_lock.direct().await);
            slots
        };
        let Some(slots) = self.pipeline.draining.run_until_cancelled(ready).await else { return Ok(false) };
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

    /// Takes rows, and returns when they were taken at the earliest.
    async fn take(&mut self, limit: usize) -> Result<(Vec<Row>, Instant), StoreError> {
        let Self { pipeline, callers, looks, .. } = self;
        let (token, mut taken) = (Uuid::new_v4(), Instant::now());
        let take = async {
            let began = Instant::now();
            let since = looks.since(began);
            let answer = pipeline.store.take_calls(callers, limit, since, token).await?;
            looks.found(began, &answer.rows);
            taken = answer.since;
            Ok(answer.rows)
        };
        let rows = pipeline.taken(token, (), take).await?;
        Ok((rows.map(|(rows, ())| rows).unwrap_or_default(), taken))
    }
}
