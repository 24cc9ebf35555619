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
    let (mut looks, mut running) = (Looks::new(pipeline.settings.poll), JoinSet::new());
    while !pipeline.draining.is_cancelled() {
        // Starts as many calls as can begin at once, and returns whether at least that many were due.
        let round = async {
            // Not while an orphaned row has the process to itself.
            let ready = async {
                let slots = free(&slots).await;
                drop(pipeline.isolation_lock.direct().await);
                slots
            };
            let Some(slots) = pipeline.draining.run_until_cancelled(ready).await else { return Ok(false) };
            if pipeline.is_outbox_full() {
                return Ok(false);
            }
            let (rows, taken) = take(&pipeline, &callers, slots.len(), &mut looks).await?;
            let all = rows.len() == slots.len();
            for (row, slot) in rows.into_iter().zip(slots) {
                let pipeline = pipeline.clone();
                running.spawn(async move {
                    pipeline.defect.task("calls", pipeline.call_row(&row, taken)).await;
                    drop(slot);
                });
            }
            Ok::<_, StoreError>(all)
        };
        let round = round.await;
        pipeline.rest_after(round, &pipeline.calls_due, &mut running).await;
    }
    while running.join_next().await.is_some() {}
}

/// Takes rows, and returns when they were taken at the earliest.
async fn take<S: Store>(
    pipeline: &Pipeline<S>,
    callers: &[Caller],
    limit: usize,
    looks: &mut Looks,
) -> Result<(Vec<Row>, Instant), StoreError> {
    let (token, mut taken) = (Uuid::new_v4(), Instant::now());
    let take = async {
        let began = Instant::now();
        let since = looks.since(began);
        let answer = pipeline.store.take_calls(callers, limit, since, token).await?;
        looks.found(began, &answer.rows);
        taken = answer.since;
        Ok(answer.rows)
    };
    let rows = pipeline.taken(token, take).await?;
    Ok((rows, taken))
}
